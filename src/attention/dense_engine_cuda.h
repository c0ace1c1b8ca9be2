// The `dense` engine for CUDA tensors of 16 bits, over the kernels of cuda/dense_attention.h. What does not
// fit them runs on ATen (dense_engine.cpp).
#pragma once

#include "attention/engines.h"

namespace topomask {

// bfloat16 or float16 on a GPU with tensor cores, d and d_v multiples of 8 up to 128.
bool runs_on_tensor_cores(at::ScalarType dtype, c10::Device device, std::int64_t d, std::int64_t d_v);

// dense_engine_forward and dense_engine_backward for what runs on tensor cores.
EngineResult dense_engine_forward_on_tensor_cores(const EngineInputs& inputs, const at::Tensor& matrix,
                                                  bool learning);
EngineGradients dense_engine_backward_on_tensor_cores(const at::Tensor& grad_out, const EngineInputs& inputs,
                                                      const at::Tensor& matrix, const EngineResult& result,
                                                      bool mask_learns);

// x as the kernels read it, whole rows of 16-byte chunks: itself where it lies so, or a copy.
at::Tensor as_rows(const at::Tensor& x);

}  // namespace topomask
