// The `mask` engine for CUDA tensors: mask_engine_forward and mask_engine_backward of engines.h over the
// kernels of cuda/row_attention.h.
#pragma once

#include "attention/engines.h"

namespace topomask {

EngineResult mask_engine_forward_on_gpu(const EngineInputs& inputs, const std::vector<SparseEntries>& entries,
                                        bool learning);
EngineGradients mask_engine_backward_on_gpu(const at::Tensor& grad_out, const EngineInputs& inputs,
                                            const std::vector<SparseEntries>& entries,
                                            const EngineResult& result, bool mask_learns);

}  // namespace topomask
