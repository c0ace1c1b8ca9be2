// The GPU's side of fused_layers.h: which arguments there are kernels for, and the passes themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace topomask {

bool fuses_add_norm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& bias);
std::pair<at::Tensor, at::Tensor> add_norm_on_gpu(const at::Tensor& x, const at::Tensor& branch,
                                                  const at::Tensor& bias, const at::Tensor& weight,
                                                  const at::Tensor& shift, double epsilon);

// Rows of 32 or 16 bits with a float32 bias.
bool fuses_rows(const at::Tensor& x, const at::Tensor& bias);
at::Tensor bias_gelu_on_gpu(const at::Tensor& x, const at::Tensor& bias);

bool fuses_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);
at::Tensor linear_on_gpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace topomask
