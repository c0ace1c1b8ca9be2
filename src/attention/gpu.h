// The engines of engines.h on a GPU.
#pragma once

#include <vector>

#include "attention/engines.h"

namespace topomask {

// `entries`: for all heads, or one per head.
at::Tensor run_mask_engine_cuda(const EngineInputs& inputs, const std::vector<SparseEntries>& entries);

// bfloat16 or float16 on a GPU with tensor cores, d and d_v multiples of 8 up to 128. Whatever does not fit
// takes the way over ATen (dense_engine.cpp).
bool runs_on_tensor_cores(const EngineInputs& inputs);
// q, k: [B, H, N, d], v: [B, H, N, d_v], any strides; mask: [1 or H, N, N] float32. Differentiable in all.
at::Tensor run_dense_engine_cuda(const EngineInputs& inputs, const at::Tensor& mask);

}  // namespace topomask
