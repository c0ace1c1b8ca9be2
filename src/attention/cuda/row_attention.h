// The `mask` engine on a GPU: the passes of attention/cpu/row_attention.h over all heads and batch entries at
// once. Framework-free: device pointers and a stream in, a status out. No atomics: every sum has one order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/score_rule.h"
#include "masks/cuda/device_rows.h"

namespace topomask {

enum class Real { float32, bfloat16, float16, float64 };

// [batch, heads, N, columns] with steps in elements; columns are adjacent.
struct Rows4 {
  void* data = nullptr;
  std::int64_t batch_step = 0, head_step = 0, node_step = 0;
};

struct RowAttentionShape {
  std::int64_t batch = 1, heads = 1;
  std::int64_t features = 0, value_columns = 0;
  ScoreRule rule;
};

// "real" below is double for float64 and float for everything else. Pairs are (batch entry, head), head last.
struct RowAttentionForward {
  RowAttentionShape shape;
  Real dtype = Real::float32;
  DeviceRows mask;
  Rows4 q, k, v, out;
  const void* value = nullptr;  // real [1 or heads, nnz] of M
  std::int64_t value_step = 0;  // from head to head, 0: all heads share them
  void* inverse = nullptr;      // real [pairs, N]: 1 / D_i, or 0 for a guarded row
  void* row_max = nullptr;      // real [pairs, N], softmax only
  void* dot = nullptr;          // real [pairs, nnz]: <q_i, k_j> for the backward pass, or null
  void* workspace = nullptr;    // see row_attention_workspace
};

struct RowAttentionBackward {
  RowAttentionShape shape;
  Real dtype = Real::float32;
  DeviceRows mask, columns;  // `columns`: the transpose of the mask
  Rows4 q, k, v, out, grad_out;
  const void* value = nullptr;
  std::int64_t value_step = 0;
  const void* inverse = nullptr;
  const void* row_max = nullptr;
  const void* dot = nullptr;
  Rows4 grad_q, grad_k, grad_v;
  // real [pairs / row_attention_summed_heads, nnz], dL/dM of every pair or of that many heads together; or
  // null
  void* grad_value = nullptr;
  void* weights = nullptr;  // real [pairs, nnz, 2]: scratch
  void* workspace = nullptr;
};

// Whether every row is a whole number of aligned 16-byte vectors, at most one for each lane of a warp.
bool rows_are_vectors(const RowAttentionForward& pass);

// Reals that the workspace of either pass needs for the segments of long rows; mostly none.
std::int64_t row_attention_workspace(const DeviceRows& rows, const RowAttentionShape& shape);

// Heads whose dL/dM the row half adds up, if they share values: neighbouring ones, at little cost.
std::int64_t row_attention_summed_heads(const RowAttentionBackward& pass);

cudaError_t row_attention_forward(const RowAttentionForward& pass, cudaStream_t stream);
// The long rows alone.
cudaError_t long_row_attention_forward(const RowAttentionForward& pass, cudaStream_t stream);
// The row half: grad_q, grad_value, and in `weights` what the column half needs.
cudaError_t row_attention_backward(const RowAttentionBackward& pass, cudaStream_t stream);
// The column half: grad_k and grad_v.
cudaError_t column_attention_backward(const RowAttentionBackward& pass, cudaStream_t stream);

// sum[e] = the sum of grad_value[p, e] over its rows p, in their order.
cudaError_t sum_of_rows(const void* grad_value, Real dtype, std::int64_t rows, std::int64_t nnz, void* sum,
                        cudaStream_t stream);

}  // namespace topomask
