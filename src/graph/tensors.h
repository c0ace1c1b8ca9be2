// Small helpers between tensors and the framework-free graph code.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/tensors.h"

namespace topomask {

// The tensor owns the moved vector, so nothing is copied.
template <class T>
at::Tensor take_vector(std::vector<T> values) {
  auto owner = std::make_shared<std::vector<T>>(std::move(values));
  const auto options = at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value);
  if (owner->empty()) return at::empty({0}, options);
  return at::from_blob(
      owner->data(), {static_cast<std::int64_t>(owner->size())}, [owner](void*) {}, options);
}

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
