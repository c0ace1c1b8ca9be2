// Operands as the kernels of this folder take them. Only for sources that are built with CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/cuda/row_attention.h"

namespace topomask {

inline Real real_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return Real::bfloat16;
    case at::kHalf:
      return Real::float16;
    case at::kDouble:
      return Real::float64;
    default:
      return Real::float32;
  }
}

// What sums are kept in: "real" in the headers of the kernels.
inline at::ScalarType accumulator(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

inline at::Tensor adjacent_columns(const at::Tensor& x) {
  return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous();
}

inline void* element(const at::Tensor& x, std::int64_t index) {
  if (!x.defined() || x.numel() == 0) return nullptr;
  return static_cast<char*>(x.data_ptr()) + index * static_cast<std::int64_t>(x.element_size());
}

// The rows of x [B, H, N, columns] from a head and a column on.
inline Rows4 rows_from(const at::Tensor& x, std::int64_t head, std::int64_t column = 0) {
  const std::int64_t offset = (head * x.stride(1) + column) * static_cast<std::int64_t>(x.element_size());
  return {static_cast<char*>(x.data_ptr()) + offset, x.stride(0), x.stride(1), x.stride(2)};
}

}  // namespace topomask
