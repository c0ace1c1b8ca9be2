// Sums over rings of particles as tensors, differentiable: cpu/ring_sums.h has the formula.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace topomask {

// positions: [M, 3], features: [M, F], queries: [P, 3], all of one type, float32 or float64; index: [P, K]
// int32, -1: none. Returns [P, rings * (F + 1)], differentiable once in positions and features.
at::Tensor ring_features(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& queries,
                         const at::Tensor& index, const std::vector<double>& radii,
                         const std::vector<double>& bandwidths);

// The same of ATen operations, for devices without a kernel.
at::Tensor composed_ring_features(const at::Tensor& positions, const at::Tensor& features,
                                  const at::Tensor& queries, const at::Tensor& index,
                                  const std::vector<double>& radii, const std::vector<double>& bandwidths);

}  // namespace topomask
