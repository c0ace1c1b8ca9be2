// The GPU's side of fused_layers.h: which arguments there are kernels for, and the passes themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "nn/row_copies.h"

namespace topomask {

// As add_and_normalise.
bool fuses_add_norm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& bias);
std::pair<at::Tensor, at::Tensor> add_norm_cuda(const at::Tensor& x, const at::Tensor& branch,
                                                const at::Tensor& bias, const at::Tensor& weight,
                                                const at::Tensor& shift, double epsilon);

// As add_bias_and_gelu; rows of 32 or 16 bits with a float32 bias.
bool fuses_rows(const at::Tensor& x, const at::Tensor& bias);
at::Tensor bias_gelu_cuda(const at::Tensor& x, const at::Tensor& bias);

// As linear_layer.
bool fuses_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor linear_cuda(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// As RowCopies.
CopiesByRow copies_by_row_cuda(const at::Tensor& index, std::int64_t rows);
bool fuses_copies(const at::Tensor& x, const CopiesByRow& by_row);
at::Tensor copied_rows_cuda(const at::Tensor& x, const at::Tensor& index, const CopiesByRow& by_row);

}  // namespace topomask
