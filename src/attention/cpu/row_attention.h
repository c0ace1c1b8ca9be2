// The `mask` engine: one fused pass over the nonzeros of the mask. Framework-free.
#pragma once

#include <cstdint>

#include "attention/score_rule.h"
#include "masks/cpu/spmm.h"

namespace topomask {

// One head of one batch entry. With the scores e_ij of score_rule.h, those of softmax over exp(max_i),
//   out_i = sum_j M_ij e_ij v_j / D_i,  D_i = sum_j M_ij e_ij,
// where max_i is the largest exponent with M_ij != 0.
template <class T>
struct RowAttention {
  SparseRows mask;
  const T* value = nullptr;  // [nnz] of M
  std::int64_t features = 0, value_columns = 0;
  const T* q = nullptr;  // [N, features]
  const T* k = nullptr;  // [N, features]
  const T* v = nullptr;  // [N, value_columns]
  ScoreRuleOf<T> rule;
  // Results are too large to stay in the caches: they are written past them, without being fetched before.
  bool past_caches = false;
};

// out: [N, value_columns]; inverse_normaliser: [N], 1/D_i or 0 for a guarded row; row_max: [N], softmax only;
// dot: [nnz], the products <q_i, k_j> for the backward pass, or null.
template <class T>
void row_attention_forward(const RowAttention<T>& head, T* out, T* inverse_normaliser, T* row_max, T* dot);

// What the column half of the backward pass needs of a nonzero.
template <class T>
struct ColumnWeights {
  T key;    // dL/d<q_i, k_j>
  T value;  // M_ij e_ij / D_i
};

template <class T>
struct RowAttentionGradients {
  const T* grad_out = nullptr;  // [N, value_columns]
  // As the forward pass left them.
  const T* out = nullptr;
  const T* inverse_normaliser = nullptr;
  const T* row_max = nullptr;
  const T* dot = nullptr;
  T* grad_q = nullptr;
  T* grad_k = nullptr;
  T* grad_v = nullptr;
  T* grad_value = nullptr;  // [nnz], dL/dM_ij, added to what is there if `accumulate`
  bool accumulate = false;
  ColumnWeights<T>* weights = nullptr;  // [nnz], scratch: what rows leave for columns
};

// Rows: grad_q and grad_value; columns: grad_k_j = sum_i key q_i, grad_v_j = sum_i value g_i. `columns`: the
// mask's transpose.
template <class T>
void row_attention_backward(const RowAttention<T>& head, const SparseRows& columns,
                            const RowAttentionGradients<T>& pass);

}  // namespace topomask
