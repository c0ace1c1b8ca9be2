// The peers of `topomask bench attention`, each written with torch's own operators.
//
// All take q, k: [B, H, N, m] and v: [B, H, N, d_v], apply the feature map themselves, and are
// differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "topomask/attention.h"
#include "topomask/grf_mask.h"

namespace topomask::cli {

struct Operands {
  at::Tensor q, k, v;
  at::Tensor modulation;  // [F]
};

// phi(Q) (phi(K)^T V) over phi(Q) (phi(K)^T 1).
at::Tensor unmasked_linear_attention(const Operands& x, const FeatureMap& feature_map);

// The paper's Alg. 1 as it stands: Phi_{Q,G} and Phi_{K,G}^T as sparse matrices with N m columns and rows,
// then two products with [V|1]. Their indices are made once; their values in every call, those of the graph
// features by the same pass that the masks use.
class LiteralAttention {
 public:
  LiteralAttention(const GraphFeatures& features, std::int64_t num_features);
  at::Tensor operator()(const Operands& x, const FeatureMap& feature_map) const;

  // Estimates for one pass; infinite where the entries cannot be numbered with 31 bits.
  static double predicted_bytes(const GraphFeatures& features, std::int64_t num_features, std::int64_t d_v,
                                std::int64_t element_size, bool backward);

 private:
  GraphFeatures features_;
  std::int64_t num_features_;
  at::Tensor query_row_;               // [nnz] int32: row of each entry of Phi
  at::Tensor query_crow_, query_col_;  // Phi_{Q,G}: [N, N m]
  at::Tensor key_row_, key_entry_;     // [nnz] of Psi, column by column: row and position
  at::Tensor key_crow_, key_col_;      // Phi_{K,G}^T: [N m, N]
  at::Tensor key_source_;              // [nnz m] int32: entry of [nnz, m], column by column
};

// The same work as the mask engine without fusing it: SDDMM, weights and SpMM are separate passes.
class UnfusedAttention {
 public:
  explicit UnfusedAttention(const SparsePattern& pattern);
  at::Tensor operator()(const Operands& x, const GrfMask& mask, const FeatureMap& feature_map) const;

  static double predicted_bytes(double entries, std::int64_t element_size, bool backward);

 private:
  at::Tensor crow_, col_;
};

}  // namespace topomask::cli
