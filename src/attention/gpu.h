// The engines of engines.h on a GPU: mask_engine_* over the kernels of cuda/row_attention.h, dense_engine_*
// over those of cuda/dense_attention.h, column_engine_* over those of cuda/column_attention.h.
#pragma once

#include "attention/engines.h"

namespace topomask {

EngineResult mask_engine_forward_on_gpu(const EngineInputs& inputs, const std::vector<SparseEntries>& entries,
                                        bool learning);
EngineGradients mask_engine_backward_on_gpu(const at::Tensor& grad_out, const EngineInputs& inputs,
                                            const std::vector<SparseEntries>& entries,
                                            const EngineResult& result, bool mask_learns);

EngineResult column_engine_forward_on_gpu(const EngineInputs& inputs,
                                          const std::vector<SparseFactors>& factors);
EngineGradients column_engine_backward_on_gpu(const at::Tensor& grad_out, const EngineInputs& inputs,
                                              const std::vector<SparseFactors>& factors,
                                              const EngineResult& result, bool mask_learns);
bool has_column_engine_on_gpu(const EngineInputs& inputs, const std::vector<SparseFactors>& factors);

// bfloat16 or float16 on a GPU with tensor cores, d and d_v multiples of 8 up to 128. What does not fit runs
// on ATen (dense_engine.cpp).
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
