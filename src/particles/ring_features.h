// Sums over rings of particles as tensors, differentiable: cpu/ring_sums.h has the formula.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "particles/cpu/ring_sums.h"

namespace topomask {

// The arguments of ring_features as the kernels take them; tensors must be contiguous and outlive it.
template <class T>
RingSums<T> ring_sums_of(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& queries,
                         const at::Tensor& index, const std::vector<double>& radii,
                         const std::vector<double>& bandwidths) {
  RingSums<T> sums;
  sums.samples = index.size(0);
  sums.neighbours = index.size(1);
  sums.particles = positions.size(0);
  sums.features = features.size(1);
  sums.rings = static_cast<std::int64_t>(radii.size());
  sums.position = positions.const_data_ptr<T>();
  sums.feature = features.const_data_ptr<T>();
  sums.query = queries.const_data_ptr<T>();
  sums.index = index.const_data_ptr<std::int32_t>();
  sums.radius = radii.data();
  sums.bandwidth = bandwidths.data();
  return sums;
}

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
