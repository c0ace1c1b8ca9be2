// The sum of a residual stream and a branch, and its layer norm, in one pass over the rows. Framework-free.
//
//   sum = x + (branch + bias),  normed = (sum - mean) inverse weight + shift,  inverse = 1 / stddev
//
// One by one these are four passes forward (two of them conversions) and five backward; in a small
// transformer they take longer than its matrix products.
#pragma once

#include "nn/cuda/layer_type.h"

namespace topomask {

constexpr std::int64_t kMostNormChannels = 1024;  // a multiple of 4

struct AddNormForward : LayerRows {  // of the type of branch and normed
  float epsilon = 0;
  const float* x = nullptr;       // [rows, channels], as everything but the statistics
  const void* branch = nullptr;   // null: sum = x, not written
  const float* bias = nullptr;    // [channels], may be null
  const float* weight = nullptr;  // [channels]
  const float* shift = nullptr;   // [channels]
  float* sum = nullptr;
  void* normed = nullptr;
  float* mean = nullptr;     // [rows]
  float* inverse = nullptr;  // [rows]
};
cudaError_t add_norm_forward(const AddNormForward& f, cudaStream_t stream);

struct AddNormBackward : LayerRows {
  const float* sum = nullptr;
  const float* mean = nullptr;
  const float* inverse = nullptr;
  const float* weight = nullptr;
  const void* grad_normed = nullptr;
  const float* grad_sum = nullptr;  // null: nobody else uses the sum
  float* grad_x = nullptr;
  void* grad_branch = nullptr;  // null: as grad_x, or no branch
  float* parameters = nullptr;  // [3, channels]: gradients of weight, shift and bias
  float* workspace = nullptr;   // [3, kRowSlices, channels]
};
cudaError_t add_norm_backward(const AddNormBackward& b, cudaStream_t stream);

}  // namespace topomask
