// Small helpers between tensors and the framework-free graph code.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/tensors.h"

namespace topomask {

// `order` checked to be a permutation of 0 .. num_nodes - 1.
std::vector<std::int32_t> permutation_from(const at::Tensor& order, std::int64_t num_nodes,
                                           const char* where);

// [N] int64
at::Tensor order_tensor(const std::vector<std::int32_t>& order);

// Floating-point points [N, D], no more than a graph has nodes.
void check_points(const at::Tensor& points, const char* where);

// Points as the CPU code reads them: [N, D] float32, contiguous. Rounds float64.
at::Tensor points_on_cpu(const at::Tensor& points, const char* where);

}  // namespace topomask
