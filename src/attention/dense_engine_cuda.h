// The `dense` engine for CUDA tensors of 16 bits: the kernels of cuda/dense_attention.h as one differentiable
// function. Whatever does not fit them takes the way over ATen (dense_engine.cpp).
#pragma once

#include "attention/engines.h"

namespace topomask {

// bfloat16 or float16 on a GPU with tensor cores, d and d_v multiples of 8 up to 128.
bool runs_on_tensor_cores(const EngineInputs& inputs);

// q, k: [B, H, N, d], v: [B, H, N, d_v], any strides; mask: [1 or H, N, N] float32. Differentiable in all.
at::Tensor run_dense_engine_cuda(const EngineInputs& inputs, const at::Tensor& mask);

}  // namespace topomask
