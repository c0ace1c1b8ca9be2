// The gradient of copied rows: each row is the sum of its copies' gradients, in their order and without
// atomics. Framework-free.
#pragma once

#include "nn/cuda/layer_type.h"

namespace topomask {

// sum[t] = sum of x[entry[e]] for e from ptr[t] to ptr[t+1]; any number of channels.
struct RowsByTarget : LayerRows {       // rows: of the sum
  const void* x = nullptr;              // [entries, channels]
  const std::int64_t* ptr = nullptr;    // [rows+1]
  const std::int32_t* entry = nullptr;  // [entries]
  void* sum = nullptr;                  // [rows, channels]
};
cudaError_t sum_rows_by_target(const RowsByTarget& rows, cudaStream_t stream);

}  // namespace topomask
