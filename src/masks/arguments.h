// Checks and small products that the masks share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "topomask/mask.h"

namespace topomask {

// x as apply() and apply_transposed() take it: [H, N, C], float32 or float64.
void check_input(const Mask& mask, const at::Tensor& x);
// The same for masks whose kernels run on the CPU only.
void check_cpu_input(const Mask& mask, const at::Tensor& x);

// A parameter of the given shape, float32 or float64; -1 stands for a size that is free (at least 1 head).
// `shape` is how the message writes it: "[H, N, R]".
void check_parameter(const char* mask, const char* argument, const at::Tensor& tensor, at::IntArrayRef sizes,
                     const char* shape);

std::int64_t checked_num_nodes(const char* mask, std::int64_t num_nodes);

// left (right^T x) in the dtype of x.
at::Tensor apply_factors(const at::Tensor& left, const at::Tensor& right, const at::Tensor& x);

}  // namespace topomask
