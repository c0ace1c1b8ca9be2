// The bounds of the theory, and measured errors to compare with (Thm. 3.1, Lemma 3.2).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "topomask/features.h"
#include "topomask/graph.h"
#include "topomask/kernels.h"

namespace topomask {

// r = max_ij |W_ij| d_i / (1 - p_halt), the base of the theorem's constant; d_i is the number of entries of
// row i. 0 without edges; infinite for p_halt = 1 otherwise.
double load_growth(const Graph& graph, double p_halt);
// c = sum_k |f_k| r^k; infinite where the series diverges. The walks of a truncated modulation have the c of
// the second form, which is always finite for p_halt < 1.
double concentration_constant(const Graph& graph, const NodeKernel& kernel, double p_halt);
double concentration_constant(const Graph& graph, const std::vector<double>& modulation, double p_halt);
// sum_k |alpha_k| r^k, the constant of one-hot keys, whose queries carry alpha; infinite where it diverges.
double coefficient_constant(const Graph& graph, const NodeKernel& kernel, double p_halt);
// Pr(|M_hat_ij - M_ij| > t) <= 2 exp(-t^2 n^3 / (2 (2n-1)^2 c^4)), the formula as it stands: a value above 1
// says nothing, an infinite c gives 2. It holds for independent walkers, and for shared ensembles off the
// diagonal.
double tail_bound(double t, std::int64_t num_walks, double c);
// Smallest n whose tail bound at t is at most delta; -1 if c is infinite or n would pass 2^62.
std::int64_t walks_needed(double t, double delta, double c);
// Lemma 3.2: with probability at least 1 - delta a feature has at most this many nonzeros, whatever the
// graph. Deviation: the paper's count b n leaves no room for a fractional b; ours is b n + 1 (see the
// definition).
double sparsity_bound(std::int64_t num_walks, double p_halt, double delta);

// One row of an error study: mean over trials of |M_hat - M|_F^2 / |M|_F^2 and the mean signed errors.
struct KernelError {
  std::int64_t walks = 0;
  double error = 0, error_se = 0;
  double bias_diagonal = 0, bias_diagonal_se = 0;
  double bias_off_diagonal = 0, bias_off_diagonal_se = 0;
  // trace(M_hat) / trace(M): 1 but for shared ensembles, whose diagonal is too large (docs/mathematics.md).
  double diagonal_ratio = 0, diagonal_ratio_se = 0;
  double nonzeros_per_row = 0;  // of Phi, mean over rows and trials
  // |M_target - M_full|_F^2 / |M_full|_F^2 with the untruncated kernel; NaN where that does not exist.
  double truncation_error = 0;
};
// The target is the mask of the truncated modulation, so that the bias is that of the estimator alone. Trial
// i walks with seed derive_seed(options.walks.seed, i). Standard errors are over the trials: NaN for a single
// one. `progress(done, total)` may be empty; it is called from the calling thread.
KernelError measure_kernel_error(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options,
                                 std::int64_t trials,
                                 const std::function<void(std::int64_t, std::int64_t)>& progress = {});
// E[Phi] E[Psi]^T, the mask that features with these options estimate (but for the diagonal of shared
// ensembles): sum_k alpha_k W^k of the modulation truncated at max_hops, or its ad-hoc counterpart; [N, N]
// float64.
at::Tensor estimated_target(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options);
// The same with a given f of the queries and of the keys; one-hot keys have none, theirs is not read.
at::Tensor estimated_target(const Graph& graph, std::vector<double> query_f, std::vector<double> key_f,
                            const FeatureOptions& options);
// The modulation that the options' query features need: f for symmetric ensembles, alpha for asymmetric ones.
std::vector<double> feature_modulation(const NodeKernel& kernel, const FeatureOptions& options);
// The same for the key features: f again, or {1} for the one-hot keys of asymmetric ensembles.
std::vector<double> key_modulation(const NodeKernel& kernel, const FeatureOptions& options);

}  // namespace topomask
