// The paper's form for a mask with sparse factors, M = Phi Psi^T, without ever forming phi(k) x [V|1].
// Framework-free.
#pragma once

#include <cstdint>

#include "masks/cpu/spmm.h"

namespace topomask {

// One head of one batch entry: numerator_i = sum_c q_ic sum_p Phi_ip S_pc, S_pc = sum_j Psi_jp k_jc v_j, one
// feature c at a time, so that S is one row of value_columns per node and stays in the cache.
template <class T>
struct FeatureAttention {
  SparseRows query;        // Phi
  SparseRows key_columns;  // the transpose of Psi
  const T* query_value = nullptr;
  const T* key_value = nullptr;
  std::int64_t features = 0, value_columns = 0;
  const T* q = nullptr;  // [features, N]
  const T* k = nullptr;  // [features, N]
  const T* v = nullptr;  // [N, value_columns]
};

// numerator: [N, value_columns], normaliser: [N], both set to zero by the caller; scratch: [N, value_columns
// + 1].
template <class T>
void feature_attention_forward(const FeatureAttention<T>& head, T* numerator, T* normaliser, T* scratch);

}  // namespace topomask
