#include "nn/fused_layers.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "nn/gpu.h"

namespace topomask {

bool adds_biases_late(const at::Tensor& x) {
  return x.is_cuda();
}

std::pair<at::Tensor, at::Tensor> add_and_normalise(const at::Tensor& x, const at::Tensor& branch,
                                                    const at::Tensor& bias, const at::Tensor& weight,
                                                    const at::Tensor& shift, double epsilon) {
  if (fuses_add_norm(x, branch, bias)) return add_norm_cuda(x, branch, bias, weight, shift, epsilon);
  at::Tensor sum = x;
  if (branch.defined()) sum = x + (bias.defined() ? branch + bias : branch);
  return {sum, at::layer_norm(sum, {x.size(-1)}, weight, shift, epsilon)};
}

at::Tensor add_bias_and_gelu(const at::Tensor& x, const at::Tensor& bias) {
  if (fuses_rows(x, bias)) return bias_gelu_cuda(x, bias);
  return at::gelu(x + bias);
}

at::Tensor linear_layer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (fuses_linear(x, weight, bias)) return linear_cuda(x, weight, bias);
  return at::linear(x, weight, bias);
}

}  // namespace topomask
