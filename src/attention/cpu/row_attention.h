// The `mask` engine: one fused pass over the nonzeros of the mask. Framework-free.
#pragma once

#include <cstdint>

#include "masks/cpu/spmm.h"

namespace topomask {

// One head of one batch entry. With the score e_ij = <q_i, k_j> (linear) or exp(scale <q_i, k_j> - max_i)
// (softmax)
//   out_i = sum_j M_ij e_ij v_j / D_i,  D_i = sum_j M_ij e_ij.
template <class T>
struct RowAttention {
  SparseRows mask;
  const T* value = nullptr;  // [nnz] of M
  std::int64_t features = 0, value_columns = 0;
  const T* q = nullptr;  // [N, features]
  const T* k = nullptr;  // [N, features]
  const T* v = nullptr;  // [N, value_columns]
  bool softmax = false;
  T scale = 1;
  T guard = 0;  // rows with |D_i| <= guard give 0 and pass no gradient
};

// out: [N, value_columns]; inverse_normaliser: [N], 1/D_i or 0 for a guarded row; row_max: [N], softmax only.
template <class T>
void row_attention_forward(const RowAttention<T>& head, T* out, T* inverse_normaliser, T* row_max);

// The row half of the backward pass: grad_q, and per nonzero what the column half needs.
//   grad_value[p] += dL/dM_ij, key_weight[p]: grad_k_j += key_weight q_i, value_weight[p]: grad_v_j +=
//   value_weight g_i.
template <class T>
void row_attention_backward(const RowAttention<T>& head, const T* grad_out, const T* out,
                            const T* inverse_normaliser, const T* row_max, T* grad_q, T* grad_value,
                            T* key_weight, T* value_weight);

}  // namespace topomask
