// The `feature` engine by columns, for masks with sparse factors. Framework-free.
//
// With A and B sparse, N x C, one pass computes
//
//   out_i = sum_c A_ic u_ic,   u_ic = x_i^T Z_c,   Z_c = sum_j B_jc y_j z_j^T.
//
// All that meets in a column is gathered once, and the rest are small matrix products. Attention is the pass
// (x, y, z) = (q, k, v) with A = Phi and B = Psi; column_engine.cpp has those of its gradients.
#pragma once

#include <cstdint>

#include "masks/cpu/spmm.h"

namespace topomask {

// One head of one batch entry.
template <class T>
struct ColumnAttention {
  SparseRows rows;                                     // A
  SparseRows row_columns, key_columns;                 // the transposes of A and B
  const std::int64_t* position = nullptr;              // [nnz(A)] where an entry of A stands in row_columns
  const T *row_value = nullptr, *key_value = nullptr;  // of A and B, row by row
  const T* key_scale = nullptr;                        // [N], a factor of row j of B; null: 1
  std::int64_t features = 0, value_columns = 0;
  const T *x = nullptr, *y = nullptr;  // [N, features]
  const T* z = nullptr;                // [N, value_columns]
  // A feature more, x_extra_i y_extra_j; one of them null: no such feature, or 1 beside the other.
  const T *x_extra = nullptr, *y_extra = nullptr;  // [N]
};

template <class T>
struct ColumnResult {
  T* out = nullptr;   // [N, value_columns]
  T* ones = nullptr;  // [N], the same for a column of ones beside z, or null
  // dL/dA: the products <along_i, u_ic>, [nnz(A)]; both null or none.
  const T* along = nullptr;  // [N, value_columns]
  T* value_gradient = nullptr;
};

// Writes all of the result. The order of every sum depends on the patterns and sizes alone.
template <class T>
void column_attention(const ColumnAttention<T>& pass, const ColumnResult<T>& result);

}  // namespace topomask
