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
// pattern of M_hat belong to the graph and are made once; only values are recomputed when f changes.
//
// Queries and keys share one f, or each have their own (App. D): then M_hat estimates sum_k (f1 * f2)_k W^k.
class GrfMask : public Mask {
 public:
  // f: [F] or [heads, F], or [heads, 2, F] with f of the queries before f of the keys; float; it may require
  // a gradient. One set of walks serves all heads.
  GrfMask(const Graph& graph, const FeatureOptions& options, at::Tensor f);
  // One set of walks per head, as the paper has it; head h with seed derive_seed(seed, h).
  static std::shared_ptr<GrfMask> per_head(const Graph& graph, const FeatureOptions& options, at::Tensor f);
  // From features sampled elsewhere: one element, or one per row of f.
  GrfMask(std::vector<GraphFeatures> features, at::Tensor f);

  // The same walks and patterns with another f, of any length.
  std::shared_ptr<const GrfMask> with_f(at::Tensor f) const;
  const at::Tensor& f() const { return f_; }
  // [heads, F], differentiable in f(). Keys use the queries' unless they have their own.
  at::Tensor query_f() const;
  at::Tensor key_f() const;
  const GraphFeatures& features(std::int64_t head = 0) const;
  std::int64_t feature_nnz() const;  // of Phi, over all sets of walks
  // Counts the entries of M_hat, which makes its pattern; the profile estimates them before that.
  void count_entries() const;

  std::string name() const override;
  std::int64_t num_nodes() const override;
  std::int64_t heads() const override { return f_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {f_}; }
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  std::vector<SparseEntries> entries() const override;
  std::vector<std::shared_ptr<const SparsePattern>> patterns() const override;
  std::vector<at::Tensor> entry_gradients(const std::vector<at::Tensor>& of_values) const override;
  std::vector<SparseFactors> sparse_factors() const override;
  MaskProfile profile() const override;

 private:
  struct Symbolic;
  at::Tensor query_values(std::size_t set) const;
  at::Tensor key_values(std::size_t set) const;
  std::vector<SparseEntries> compute_entries() const;

  std::shared_ptr<Symbolic> symbolic_;
  at::Tensor f_;  // [heads, F] or [heads, 2, F]
};

// M_alpha = sum_k alpha_k W^k exactly: matrix-free by Horner's rule, dense on demand.
class PowerSeriesMask : public Mask {
 public:
  // alpha: [K+1] or [heads, K+1], float; may require a gradient. `squared`: S S^T of that sum S, which is
  // what graph random features with f = alpha estimate.
  PowerSeriesMask(const Graph& graph, at::Tensor alpha, bool squared = false);

  std::string name() const override { return "power-series"; }
  std::int64_t num_nodes() const override { return pattern_->num_nodes(); }
  std::int64_t heads() const override { return alpha_.size(0); }
  std::vector<at::Tensor> parameters() const override { return {alpha_}; }
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  MaskProfile profile() const override;

 private:
  at::Tensor multiply_series(const at::Tensor& x, bool transposed) const;

  std::shared_ptr<const SparsePattern> pattern_;
  at::Tensor weight_;  // [1, E]
  at::Tensor alpha_;   // [heads, K+1]
  bool squared_;
};

}  // namespace topomask
