// How many walks an accuracy needs, and what attention with that many walks costs: by theory, measurement and
// the planner.
//
// The theorem's number of walks holds for every graph with the same constant c and is large; the measured
// number comes from the variance of this graph's mask entries. Costs are those of plan_attention for one
// head.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "topomask/attention.h"
#include "topomask/features.h"
#include "topomask/graph.h"
#include "topomask/kernels.h"
#include "topomask/words.h"

namespace topomask {

// What the probability is about. Thm. 3.1 bounds one entry; at 95 % of N^2 entries many lie outside, so all
// of them at once need the union bound: 1 - confidence is shared out among the entries.
enum class PlanScope { entry, all_entries };

struct PlanOptions {
  double error = 0.1;                  // t: |M_hat_ij - M_ij| <= t ...
  double confidence = 0.95;            // ... with at least this probability ...
  PlanScope scope = PlanScope::entry;  // ... for each entry by itself, or for all at once
  std::int64_t features = 64;          // m, query/key channels after the feature map
  std::int64_t channels = 64;          // d, value channels
  bool learned = true;                 // f is learned: each pass recomputes the values of M
};

struct FeaturePlan {
  std::int64_t entries = 1;  // that the probability covers: 1, or the distinct entries of M_hat

  // Thm. 3.1 covers independent walkers of geometric length with uniform steps and importance weights; for
  // shared ensembles the entries off the diagonal. Elsewhere c is NaN and walks_theorem -1.
  bool theorem_applies = true;
  double load_growth = 0;          // r, the larger of the query and the key walks'
  double c = 0;                    // of the modulation truncated at max_hops
  double c_untruncated = 0;        // of the whole series (f, or alpha for one-hot keys); may be infinite
  std::int64_t walks_theorem = 0;  // -1: it does not apply, c is infinite or the number passes 2^62
  std::string note;                // why there is no number, and what to do; else empty

  std::int64_t walks_measured = 0;
  double worst_deviation = 0;  // standard deviation of the worst sampled entry at `pilot_walks`
  double worst_bias = 0;       // of the worst sampled diagonal entry at `pilot_walks`; 0 unless shared
  std::int64_t pilot_walks = 0;
  std::int64_t pilot_repeats = 0;
  std::int64_t pilot_rows = 0;

  // Everything below is for `walks` walks per node: walks_measured, or fewer if that is too many to sample
  // here.
  std::int64_t walks = 0;
  double sparsity_bound = 0;       // nonzeros of a row of Phi, at most
  bool sparsity_by_lemma = false;  // by Lemma 3.2, with the confidence for each row; else by max_hops, always
  double nonzeros_mean = 0;        // of a row of Phi
  std::int64_t nonzeros_max = 0;
  std::int64_t nnz_query = 0, nnz_key = 0;
  double nnz_mask = 0;
  bool nnz_mask_counted = true;  // false: estimated from a sample of rows
  AttentionPlan attention;       // one head, m and d as requested, float32 on a CPU
  double predicted_seconds = 0;  // of the engine that it takes
  // |M_hat - M| / |M| (Frobenius) of one sample, over that many random rows, with its standard error. M has
  // the kernel's coefficients up to twice max_hops. NaN without importance weights and on graphs too large.
  double relative_error = std::numeric_limits<double>::quiet_NaN();
  double relative_error_se = std::numeric_limits<double>::quiet_NaN();
  std::int64_t relative_error_rows = 0;
};

// options.walks.num_walks is not used: the number of walks is what this finds. `progress(done, total)` may be
// empty.
FeaturePlan plan_features(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options,
                          const PlanOptions& request,
                          const std::function<void(std::int64_t, std::int64_t)>& progress = {});

// The same kernel by each kind of ensemble, with the walks that each needs for the wanted error on this
// graph.
struct EnsemblePlan {
  Ensembles ensembles = Ensembles::shared;
  FeaturePlan plan;
};
struct EnsembleComparison {
  std::vector<EnsemblePlan> plans;     // shared, independent, asymmetric
  Ensembles best = Ensembles::shared;  // the one with the least predicted time
  std::string advice;                  // a sentence; empty for a graph without nodes
  std::string to_string() const;       // a table, then the advice
};
// options.ensembles is not used.
EnsembleComparison compare_ensembles(const Graph& graph, const NodeKernel& kernel,
                                     const FeatureOptions& options, const PlanOptions& request,
                                     const std::function<void(std::int64_t, std::int64_t)>& progress = {});

// Smallest two-sided Gaussian quantile z with Pr(|Z| <= z) >= confidence.
double gaussian_quantile(double confidence);

template <>
std::span<const Word<PlanScope>> words<PlanScope>();

}  // namespace topomask
