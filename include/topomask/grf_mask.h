// The paper's own masks: graph random features (Sec. 3.3, App. D), their ad-hoc variant, and the exact power
// series.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "topomask/features.h"
#include "topomask/kernels.h"
#include "topomask/mask.h"

namespace topomask {

// M_hat = Phi Psi^T with learnable f. The walks, the pattern of the features and (where it is asked for) the
// pattern of M_hat belong to the graph and are made once; only values are computed anew when f changes.
class GrfMask : public Mask {
 public:
  // modulation: [F] or [heads, F], float; it may require a gradient. One set of walks serves all heads.
  GrfMask(const Graph& graph, const FeatureOptions& options, at::Tensor modulation);
  // One set of walks per head (the paper freezes one per head and layer), head h with seed derive_seed(seed,
  // h).
  static std::shared_ptr<GrfMask> per_head(const Graph& graph, const FeatureOptions& options,
                                           at::Tensor modulation);
  // From features sampled elsewhere: one element, or one per row of `modulation`.
  GrfMask(std::vector<GraphFeatures> features, at::Tensor modulation);

  // The same walks and patterns with another f.
  GrfMask with_modulation(at::Tensor modulation) const;
  const at::Tensor& modulation() const { return modulation_; }
  const GraphFeatures& features(std::int64_t head = 0) const;
  std::int64_t feature_nnz() const;  // of Phi, over all sets of walks

  std::string name() const override;
  std::int64_t num_nodes() const override;
  std::int64_t num_heads() const override { return modulation_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {modulation_}; }
  at::Tensor apply(const at::Tensor& x) const override;
  at::Tensor apply_transposed(const at::Tensor& x) const override;
  bool has_entries() const override { return true; }
  std::vector<SparseEntries> entries() const override;
  bool entries_per_head() const override;
  std::int64_t num_entries_total() const override;  // counted if the pattern is there already, else estimated
  bool has_sparse_factors() const override;
  std::vector<SparseFactors> sparse_factors() const override;
  MaskCost cost() const override;

 private:
  struct Symbolic;
  GrfMask(std::shared_ptr<Symbolic> symbolic, at::Tensor modulation);
  at::Tensor apply_any(const at::Tensor& x, bool transposed) const;
  at::Tensor query_values(std::size_t set) const;
  at::Tensor key_values(std::size_t set) const;
  std::vector<SparseEntries> compute_entries() const;

  std::shared_ptr<Symbolic> symbolic_;
  at::Tensor modulation_;  // [heads, F]
  // Without gradients the entries stay as they are for as long as f does: computed once, not at every call.
  struct EntryCache;
  std::shared_ptr<EntryCache> cache_;
};

// M_alpha = sum_k alpha_k W^k exactly: matrix-free by Horner's rule, dense on demand.
class PowerSeriesMask : public Mask {
 public:
  // coefficients: [K+1] or [heads, K+1], float; may require a gradient.
  PowerSeriesMask(const Graph& graph, at::Tensor coefficients);

  std::string name() const override { return "power-series"; }
  std::int64_t num_nodes() const override { return pattern_->num_nodes(); }
  std::int64_t num_heads() const override { return coefficients_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {coefficients_}; }
  at::Tensor apply(const at::Tensor& x) const override;
  at::Tensor apply_transposed(const at::Tensor& x) const override;
  MaskCost cost() const override;

 private:
  at::Tensor apply_any(const at::Tensor& x, bool transposed) const;

  std::shared_ptr<const SparsePattern> pattern_;
  at::Tensor weight_;        // [1, E]
  at::Tensor coefficients_;  // [heads, K+1]
};

}  // namespace topomask
