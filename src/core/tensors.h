// Tensors of vectors, and what error messages say about tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace topomask {

// The tensor owns the moved vector, so nothing is copied.
template <class T, class Allocator>
at::Tensor take_vector(std::vector<T, Allocator> values) {
  auto owner = std::make_shared<std::vector<T, Allocator>>(std::move(values));
  const auto options = at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value);
  if (owner->empty()) return at::empty({0}, options);
  return at::from_blob(
      owner->data(), {static_cast<std::int64_t>(owner->size())}, [owner](void*) {}, options);
}

// "float32 [3, 4] on cpu", for error messages.
std::string describe(const at::Tensor& tensor);

bool is_index(const at::Tensor& tensor);  // int32 or int64

}  // namespace topomask
