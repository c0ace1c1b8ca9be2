// How many walks an accuracy needs and what attention with them costs: theory, measurement and the three
// engines.
//
// The theorem's number of walks holds for every graph with its constant c and is large; the measured one
// comes from the variance of this graph's own mask entries. Costs are per head, for m query/key features and
// d value channels.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "topomask/features.h"
#include "topomask/graph.h"
#include "topomask/kernels.h"

namespace topomask {

struct PlanOptions {
  double error = 0.1;          // t: |M_hat_ij - M_ij| <= t ...
  double confidence = 0.95;    // ... with at least this probability, for each entry
  std::int64_t features = 64;  // m, query/key channels after the feature map
  std::int64_t channels = 64;  // d, value channels
};

struct EngineCost {
  std::string engine;          // dense, feature, mask
  double multiply_adds = 0;    // per head
  double bytes = 0;            // read and written per head if no gather hits the cache, float32
  double workspace_bytes = 0;  // what the engine must hold besides q, k, v and the output
};

struct FeaturePlan {
  double load_growth = 0;          // r of Thm. 3.1, the larger of the query and the key walks'
  double c = 0;                    // of the modulation truncated at max_hops
  double c_untruncated = 0;        // of the whole series (f, or alpha for one-hot keys); may be infinite
  std::int64_t walks_theorem = 0;  // -1: c is infinite or the number passes 2^62
  std::int64_t walks_measured = 0;
  double worst_deviation = 0;  // standard deviation of the worst sampled entry at `pilot_walks`
  double worst_bias = 0;       // of the worst sampled diagonal entry at `pilot_walks`; 0 unless shared
  std::int64_t pilot_walks = 0;
  std::int64_t pilot_repeats = 0;
  std::int64_t pilot_rows = 0;

  // Everything below is for `walks` walks a node: walks_measured, or fewer if that is too many to sample
  // here.
  std::int64_t walks = 0;
  double sparsity_bound = 0;  // Lemma 3.2 at delta = 1 - confidence
  double nonzeros_mean = 0;   // of a row of Phi
  std::int64_t nonzeros_max = 0;
  std::int64_t nnz_query = 0, nnz_key = 0;
  double nnz_mask = 0;
  bool nnz_mask_counted = true;  // false: estimated from a sample of rows
  std::vector<EngineCost> engines;
  std::string cheapest;  // by multiply-adds
  std::string note;      // what to change where the theorem promises nothing; else empty
};

// options.walks.num_walks is not used: the number of walks is what this finds. `progress(done, total)` may be
// empty.
FeaturePlan plan_features(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options,
                          const PlanOptions& request,
                          const std::function<void(std::int64_t, std::int64_t)>& progress = {});

// Smallest two-sided Gaussian quantile z with Pr(|Z| <= z) >= confidence.
double gaussian_quantile(double confidence);

}  // namespace topomask
