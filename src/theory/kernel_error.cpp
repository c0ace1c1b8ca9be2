// How far sampled masks are from their target: the measured side of Thm. 3.1.
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "theory/series_tensor.h"
#include "topomask/grf_mask.h"
#include "topomask/theory.h"

namespace topomask {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The coefficients of E[Phi]: f_k of W^k, or without importance weights, where a visit counts its
// probability, f_k S(k) of P^k (Eq. 21). Hops that no walk reaches (S(k) = 0) add nothing.
std::vector<double> expected_hops(std::vector<double> f, const FeatureOptions& options) {
  const std::vector<double> survival = survival_function(options.walks);
  f.resize(std::min(f.size(), survival.size()));
  for (std::size_t k = 0; k < f.size(); ++k) {
    if (!options.importance_weights) {
      f[k] *= survival[k];
    } else if (survival[k] == 0) {
      f[k] = 0;
    }
  }
  return f;
}

// The transition matrix of one step, as a graph.
Graph step_probabilities(const Graph& graph, StepLaw law) {
  const CsrView view = graph.view();
  at::Tensor probability = graph.weight.clone();
  float* p = probability.data_ptr<float>();
  for (std::int64_t node = 0; node < view.num_nodes; ++node) {
    double total = 0;
    for (std::int64_t e = view.row_ptr[node]; e < view.row_ptr[node + 1]; ++e) {
      total += law == StepLaw::uniform ? 1.0 : std::abs(static_cast<double>(view.weight[e]));
    }
    for (std::int64_t e = view.row_ptr[node]; e < view.row_ptr[node + 1]; ++e) {
      const double share = law == StepLaw::uniform ? 1.0 : std::abs(static_cast<double>(view.weight[e]));
      p[e] = total > 0 ? static_cast<float>(share / total) : 0.0f;
    }
  }
  return graph.with_weight(probability);
}

struct TrialResult {
  double error = 0, diagonal = 0, off_diagonal = 0, diagonal_ratio = 0, nonzeros = 0;
};

struct Target {
  at::Tensor mask;  // [N, N] float64
  double squared_norm = 0, trace = 0;
};

TrialResult compare(const GrfMask& mask, const Target& target) {
  const at::Tensor difference = mask.dense(at::kDouble).squeeze(0) - target.mask;
  const double total = difference.sum().item<double>(), diagonal = difference.trace().item<double>();
  const auto size = static_cast<double>(mask.num_nodes());
  return {difference.square().sum().item<double>() / target.squared_norm, diagonal / size,
          size > 1 ? (total - diagonal) / (size * (size - 1)) : 0,
          target.trace != 0 ? 1 + diagonal / target.trace : kNaN,
          static_cast<double>(mask.feature_nnz()) / size};
}

struct MeanAndError {
  double mean = 0, standard_error = 0;
};

MeanAndError summarise_trials(const std::vector<TrialResult>& results, double TrialResult::*field) {
  const auto count = static_cast<double>(results.size());
  double mean = 0, squares = 0;
  for (const TrialResult& result : results) mean += result.*field / count;
  for (const TrialResult& result : results) squares += (result.*field - mean) * (result.*field - mean);
  return {mean, results.size() > 1 ? std::sqrt(squares / (count - 1) / count) : kNaN};
}

double relative_truncation_error(const Graph& graph, const NodeKernel& kernel, const at::Tensor& target) {
  at::Tensor full;
  try {
    full = exact_kernel(graph, kernel);
  } catch (const Error&) {
    return kNaN;  // the untruncated kernel does not exist for this W; the truncated one is still estimated
  }
  return (target - full).square().sum().item<double>() / full.square().sum().item<double>();
}

}  // namespace

std::vector<double> feature_modulation(const NodeKernel& kernel, const FeatureOptions& options) {
  return options.ensembles == Ensembles::asymmetric ? kernel.coefficients_up_to(options.walks.max_hops)
                                                    : kernel.modulation_up_to(options.walks.max_hops);
}

std::vector<double> key_modulation(const NodeKernel& kernel, const FeatureOptions& options) {
  return options.ensembles == Ensembles::asymmetric ? std::vector<double>{1.0}
                                                    : kernel.modulation_up_to(options.walks.max_hops);
}

at::Tensor estimated_target(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options) {
  check_walk_options(options.walks);
  return estimated_target(graph, feature_modulation(kernel, options), key_modulation(kernel, options),
                          options);
}

at::Tensor estimated_target(const Graph& graph, std::vector<double> query_f, std::vector<double> key_f,
                            const FeatureOptions& options) {
  check_walk_options(options.walks);
  check(graph.num_nodes() <= kMaxDenseNodes,
        "estimated_target: a dense mask is limited to {} nodes, the graph has {}", kMaxDenseNodes,
        graph.num_nodes());
  const bool one_hot_keys = options.ensembles == Ensembles::asymmetric;
  const std::vector<double> query_hops = expected_hops(std::move(query_f), options),
                            key_hops = expected_hops(std::move(key_f), options);
  if (options.importance_weights) {
    const at::Tensor query = dense_power_series(graph, query_hops);
    if (one_hot_keys) return query;
    // The key walks run on the transpose, so that E[Psi]^T is a series of W again.
    return query.matmul(key_hops == query_hops ? query : dense_power_series(graph, key_hops));
  }
  const at::Tensor query = dense_power_series(step_probabilities(graph, options.walks.step), query_hops);
  if (one_hot_keys) return query;
  const Graph reversed = graph.is_symmetric() ? graph : graph.transposed();
  return query.matmul(dense_power_series(step_probabilities(reversed, options.walks.step), key_hops).t());
}

KernelError measure_kernel_error(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options,
                                 std::int64_t trials,
                                 const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(trials >= 1, "measure_kernel_error: the number of trials must be positive, got {}", trials);
  check(trials <= std::int64_t{1} << 32, "measure_kernel_error: at most 2^32 trials, got {}", trials);
  Target target;
  target.mask = estimated_target(graph, kernel, options);
  target.squared_norm = target.mask.square().sum().item<double>();
  check(target.squared_norm > 0,
        "measure_kernel_error: the target mask is zero, so a relative error has no meaning");

  target.trace = target.mask.trace().item<double>();
  const at::Tensor f = as_tensor(feature_modulation(kernel, options));
  std::vector<TrialResult> results(static_cast<std::size_t>(trials));
  // Trials write their own slots and are added up in their order, whichever thread ran them.
  const std::int64_t batch = std::max<std::int64_t>(16, trials / 100);
  for (std::int64_t first = 0; first < trials; first += batch) {
    const std::int64_t last = std::min(trials, first + batch);
    parallel_for(last - first, 1, [&](std::int64_t begin, std::int64_t end) {
      FeatureOptions trial_options = options;
      for (std::int64_t trial = first + begin; trial < first + end; ++trial) {
        trial_options.walks.seed = derive_seed(options.walks.seed, static_cast<std::uint64_t>(trial));
        results[trial] = compare(GrfMask(graph, trial_options, f), target);
      }
    });
    if (progress) progress(last, trials);
  }

  KernelError report;
  report.walks = options.walks.num_walks;
  const MeanAndError error = summarise_trials(results, &TrialResult::error);
  const MeanAndError diagonal = summarise_trials(results, &TrialResult::diagonal);
  const MeanAndError off_diagonal = summarise_trials(results, &TrialResult::off_diagonal);
  report.error = error.mean, report.error_se = error.standard_error;
  report.bias_diagonal = diagonal.mean, report.bias_diagonal_se = diagonal.standard_error;
  report.bias_off_diagonal = off_diagonal.mean, report.bias_off_diagonal_se = off_diagonal.standard_error;
  const MeanAndError ratio = summarise_trials(results, &TrialResult::diagonal_ratio);
  report.diagonal_ratio = ratio.mean, report.diagonal_ratio_se = ratio.standard_error;
  report.nonzeros_per_row = summarise_trials(results, &TrialResult::nonzeros).mean;
  report.truncation_error = relative_truncation_error(graph, kernel, target.mask);
  return report;
}

}  // namespace topomask
