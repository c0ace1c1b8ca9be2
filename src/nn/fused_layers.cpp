#include "nn/fused_layers.h"

#include <ATen/Functions.h>

#ifdef TOPOMASK_CUDA
#include "nn/fused_layers_cuda.h"
#endif

namespace topomask {

bool adds_biases_late([[maybe_unused]] const at::Tensor& x) {
#ifdef TOPOMASK_CUDA
  return x.is_cuda();
#else
  return false;
#endif
}

std::pair<at::Tensor, at::Tensor> add_and_normalise(const at::Tensor& x, const at::Tensor& branch,
                                                    const at::Tensor& bias, const at::Tensor& weight,
                                                    const at::Tensor& shift, double epsilon) {
#ifdef TOPOMASK_CUDA
  if (fuses_add_norm(x, branch, bias)) return add_norm_on_gpu(x, branch, bias, weight, shift, epsilon);
#endif
  at::Tensor sum = x;
  if (branch.defined()) sum = x + (bias.defined() ? branch + bias : branch);
  return {sum, at::layer_norm(sum, {x.size(-1)}, weight, shift, epsilon)};
}

at::Tensor add_bias_and_gelu(const at::Tensor& x, const at::Tensor& bias) {
#ifdef TOPOMASK_CUDA
  if (fuses_rows(x, bias)) return bias_gelu_on_gpu(x, bias);
#endif
  return at::gelu(x + bias);
}

at::Tensor linear_layer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
#ifdef TOPOMASK_CUDA
  if (fuses_linear(x, weight, bias)) return linear_on_gpu(x, weight, bias);
#endif
  return at::linear(x, weight, bias);
}

}  // namespace topomask
