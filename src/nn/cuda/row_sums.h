// Sums over the rows of a matrix, alone or on the way through a GELU. Framework-free.
//
// Gradients of biases are such sums. There are far more rows than channels, so each block of threads takes a
// slice of the rows and some channels, and the slices are added up in a second pass.
#pragma once

#include "nn/cuda/layer_type.h"

namespace topomask {

// result[w, c] = sum over s of slices[w, s, c]; slices: [count, kRowSlices, channels].
cudaError_t sum_slices(const float* slices, int count, int channels, float* result, cudaStream_t stream);

struct RowSums : LayerRows {
  const void* x = nullptr;     // [rows, channels]
  float* sum = nullptr;        // [channels]
  float* workspace = nullptr;  // [kRowSlices, channels]
};
cudaError_t row_sums(const RowSums& sums, cudaStream_t stream);

// y = gelu(x + bias), the one with the error function.
struct BiasGelu : LayerRows {
  const void* x = nullptr;
  const float* bias = nullptr;
  void* y = nullptr;
};
cudaError_t bias_gelu_forward(const BiasGelu& g, cudaStream_t stream);

struct BiasGeluBackward : LayerRows {
  const void* x = nullptr;
  const float* bias = nullptr;
  const void* grad_y = nullptr;
  void* grad_x = nullptr;
  float* grad_bias = nullptr;
  float* workspace = nullptr;  // [kRowSlices, channels]
};
cudaError_t bias_gelu_backward(const BiasGeluBackward& g, cudaStream_t stream);

}  // namespace topomask
