// Coefficients of a series as the modulation of a GrfMask.
#pragma once

#include <ATen/ops/tensor.h>

#include <vector>

namespace topomask {

// [terms] float64
inline at::Tensor as_tensor(const std::vector<double>& series) {
  return at::tensor(at::ArrayRef<double>(series), at::kDouble);
}

}  // namespace topomask
