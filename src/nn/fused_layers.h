// The operations between the matrix products of a transformer, in as few passes over memory as possible.
//
// On a GPU norms, sums, conversions and the gradients of biases take longer than the products if each is a
// pass of its own. These functions are such passes together (src/nn/cuda) where there are kernels for their
// arguments, and the plain operations of ATen elsewhere: on a CPU, in float64, in builds without CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace topomask {

// Whether biases are better added by the reader of a product than by the product itself.
bool adds_biases_late(const at::Tensor& x);

// x + (branch + bias) and its layer norm, the latter in the type of autocast. An undefined branch or bias is
// left out.
std::pair<at::Tensor, at::Tensor> add_and_normalise(const at::Tensor& x, const at::Tensor& branch,
                                                    const at::Tensor& bias, const at::Tensor& weight,
                                                    const at::Tensor& shift, double epsilon);

at::Tensor add_bias_and_gelu(const at::Tensor& x, const at::Tensor& bias);

// at::linear, whose gradient for the bias is one pass.
at::Tensor linear_layer(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

}  // namespace topomask
