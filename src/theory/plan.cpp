#include "topomask/plan.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "core/random.h"
#include "theory/pilot.h"
#include "theory/series_tensor.h"
#include "topomask/grf_mask.h"
#include "topomask/theory.h"

namespace topomask {
namespace {

constexpr std::int64_t kFirstPilotWalks = 16;  // even, as antithetic pairs need
constexpr int kPilotRounds = 3;
constexpr std::int64_t kPilotBudget = 1 << 23;   // walks in all repeats of one pilot
constexpr std::int64_t kMostSampled = 1 << 24;   // walks of one sample that is only there to be counted
constexpr std::int64_t kMostCounted = 1 << 24;   // entries of a mask whose pattern is made to count them
constexpr std::int64_t kErrorRows = 64;          // whose error is measured at the end ...
constexpr std::int64_t kErrorNumbers = 1 << 24;  // ... or fewer: they are held in full
constexpr std::uint32_t kErrorPurpose = 0x65727221;

std::int64_t even(std::int64_t n) {
  return n + n % 2;
}

// The z with Pr(|Z| > z) = failure. In terms of the failure, since 1 - failure rounds to 1 for many entries.
double two_sided_quantile(double failure) {
  double low = 0, high = 37;  // erfc(37 / sqrt 2) is about 1e-299
  for (int step = 0; step < 100; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::numbers::sqrt2) > failure ? low : high) = middle;
  }
  return high;
}

// The n at which bias * (n0 / n) + z * deviation * sqrt(n0 / n) falls to t: the bias of a shared diagonal
// falls like 1/n, the deviation of independent walkers like 1/sqrt(n).
double walks_for(const PilotEntry& entry, double z, double t, double pilot_walks) {
  const double spread = z * entry.deviation;
  if (spread == 0 && entry.bias == 0) return 1;
  // b s^2 + spread s = t for s = sqrt(n0 / n), solved in the form that survives b = 0.
  const double s = 2 * t / (spread + std::sqrt(spread * spread + 4 * entry.bias * t));
  return pilot_walks / (s * s);
}

void plan_walks(const Graph& graph, const NodeKernel& kernel, FeatureOptions options,
                const PlanOptions& request, const std::function<void(std::int64_t, std::int64_t)>& progress,
                FeaturePlan& plan) {
  const std::vector<double> f = feature_modulation(kernel, options);
  options.walks.num_walks = kFirstPilotWalks;
  const PilotNodes pilot_nodes = choose_pilot_nodes(graph, options, f);
  const double z = two_sided_quantile((1 - request.confidence) / static_cast<double>(plan.entries));
  const auto starts =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(pilot_nodes.rows.size() + pilot_nodes.keys.size()));
  std::int64_t walks = kFirstPilotWalks;
  // Coupled walkers do not follow 1/n, so the pilot is repeated near its own answer while that can be
  // afforded.
  for (int round = 0; round < kPilotRounds; ++round) {
    const std::int64_t repeats = std::clamp<std::int64_t>(kPilotBudget / (starts * walks), 8, 64);
    options.walks.num_walks = walks;
    const PilotResult pilot = run_pilot(graph, options, f, pilot_nodes, repeats);
    double needed = 1;
    plan.worst_deviation = plan.worst_bias = 0;
    for (const PilotEntry& entry : pilot.entries) {
      needed = std::max(needed, walks_for(entry, z, request.error, static_cast<double>(walks)));
      plan.worst_deviation = std::max(plan.worst_deviation, entry.deviation);
      plan.worst_bias = std::max(plan.worst_bias, entry.bias);
    }
    plan.pilot_walks = walks;
    plan.pilot_repeats = repeats;
    plan.pilot_rows = pilot.rows;
    plan.walks_measured = needed < 0x1p60 ? even(static_cast<std::int64_t>(std::ceil(needed)))
                                          : std::numeric_limits<std::int64_t>::max();
    if (options.walks.coupling == Coupling::independent || options.walks.coupling == Coupling::repelling) {
      plan.walks_measured =
          std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(std::min(needed, 0x1p62))));
    }
    if (progress) progress(round + 1, kPilotRounds + 1);
    const double change = static_cast<double>(plan.walks_measured) / static_cast<double>(walks);
    if (change > 0.8 && change < 1.25) return;
    if (plan.walks_measured > kPilotBudget / 8 / starts) return;
    walks = std::max<std::int64_t>(2, even(plan.walks_measured));
  }
}

// Pr(|error| > t) for one-hot keys: changing one of the n walks moves M_hat_ij by at most 2 c / n, so
// McDiarmid gives 2 exp(-t^2 n / (2 c^2)), with c that of alpha. Symmetric ensembles have the theorem's own
// form.
std::int64_t theorem_walks(double t, double delta, double c, Ensembles ensembles) {
  if (ensembles != Ensembles::asymmetric) return walks_needed(t, delta, c);
  const double needed = 2 * (c / t) * (c / t) * std::log(2 / delta);
  return needed < 0x1p62 ? std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(needed))) : -1;
}

// What the theorem's proof needs and these walks lack: McDiarmid's inequality wants independent walkers, and
// c is the largest load that uniform steps and geometric lengths can make.
std::string missing_assumptions(const FeatureOptions& options) {
  std::vector<std::string> missing;
  if (options.walks.length != LengthLaw::geometric) missing.emplace_back("geometric lengths");
  if (options.walks.step != StepLaw::uniform) missing.emplace_back("uniform steps");
  if (options.walks.coupling != Coupling::independent) missing.emplace_back("independent walkers");
  if (!options.importance_weights) missing.emplace_back("importance weights");
  return fmt::format("{}", fmt::join(missing, " and "));
}

void plan_theory(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options,
                 const PlanOptions& request, FeaturePlan& plan) {
  const std::string missing = missing_assumptions(options);
  plan.theorem_applies = missing.empty();
  if (!plan.theorem_applies) {
    plan.c = plan.c_untruncated = plan.load_growth = std::numeric_limits<double>::quiet_NaN();
    plan.walks_theorem = -1;
    plan.note = fmt::format("the theorem does not apply: it needs {}", missing);
    return;
  }
  const double p_halt = options.walks.p_halt;
  const bool one_hot_keys = options.ensembles == Ensembles::asymmetric;
  const std::vector<double> query_f = feature_modulation(kernel, options);
  plan.load_growth = load_growth(graph, p_halt);
  plan.c = concentration_constant(graph, query_f, p_halt);
  plan.c_untruncated = one_hot_keys ? coefficient_constant(graph, kernel, p_halt)
                                    : concentration_constant(graph, kernel, p_halt);
  if (!one_hot_keys && !graph.is_symmetric()) {
    // The key walks run on the transpose and have a constant of their own; the larger one bounds both.
    const Graph transposed = graph.transposed();
    plan.load_growth = std::max(plan.load_growth, load_growth(transposed, p_halt));
    plan.c = std::max(plan.c, concentration_constant(transposed, query_f, p_halt));
    plan.c_untruncated = std::max(plan.c_untruncated, concentration_constant(transposed, kernel, p_halt));
  }
  const double delta = (1 - request.confidence) / static_cast<double>(plan.entries);
  plan.walks_theorem = theorem_walks(request.error, delta, plan.c, options.ensembles);
  if (plan.walks_theorem < 0) {
    plan.note = fmt::format(
        "one step can multiply a walk's load by {:.3g}, so c is {:.3g} and the theorem asks for more walks "
        "than "
        "one can make; take the measured number, or lower c by a smaller p_halt or max_hops or by max-degree "
        "normalisation",
        plan.load_growth, plan.c);
  }
}

// The distinct entries of M_hat. Shared ensembles on a symmetric W make a symmetric one.
std::int64_t distinct_entries(const Graph& graph, Ensembles ensembles) {
  const std::int64_t n = std::max<std::int64_t>(1, graph.num_nodes());
  return ensembles == Ensembles::shared && graph.is_symmetric() ? n * (n + 1) / 2 : n * n;
}

// |M_hat_i - M_i| / |M_i| over a few rows, for a mask with these walks; M has all coefficients up to twice
// max_hops, so that what one-hot keys do not see of far nodes counts as an error, too.
void measure_error(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options,
                   const GrfMask& mask, FeaturePlan& plan) {
  const std::int64_t nodes = graph.num_nodes(), count = std::min({nodes, kErrorRows, kErrorNumbers / nodes});
  if (!options.importance_weights || count < 2) return;  // visits that count 1 estimate another mask
  RandomStream random(options.walks.seed, kErrorPurpose);
  at::Tensor picked = at::zeros({nodes, count}, at::kDouble);
  double* const one = picked.data_ptr<double>();
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t node =
        count == nodes ? r : static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(nodes)));
    one[node * count + r] = 1;
  }
  const Graph transposed = graph.is_symmetric() ? graph : graph.transposed();
  const at::Tensor exact =
      apply_power_series(transposed, kernel.coefficients_up_to(2 * options.walks.max_hops), picked);
  const at::Tensor estimate = mask.multiply(picked.unsqueeze(0), /*transposed=*/true).squeeze(0);
  const at::Tensor errors = (estimate - exact).square().sum(0), norms = exact.square().sum(0);
  const double norm = norms.sum().item<double>();
  if (norm == 0) return;
  const double ratio = errors.sum().item<double>() / norm;
  const auto rows = static_cast<double>(count);
  const double spread = (errors - norms * ratio).square().sum().item<double>() * rows / (rows - 1);
  plan.relative_error = std::sqrt(ratio);
  plan.relative_error_se = ratio > 0 ? std::sqrt(spread) / norm / (2 * plan.relative_error) : 0;
  plan.relative_error_rows = count;
}

void plan_costs(const Graph& graph, const NodeKernel& kernel, FeatureOptions options,
                const PlanOptions& request, FeaturePlan& plan) {
  const std::int64_t nodes = graph.num_nodes();
  const std::int64_t affordable =
      std::max<std::int64_t>(2, kMostSampled / std::max<std::int64_t>(1, nodes) / 2 * 2);
  plan.walks = std::min(plan.walks_measured, affordable);
  options.walks.num_walks = plan.walks;
  // Lengths are at most max_hops under every law. The lemma is for independent geometric ones, which
  // antithetic termination does not leave.
  plan.sparsity_bound = static_cast<double>(plan.walks) * static_cast<double>(options.walks.max_hops) + 1;
  if (options.walks.length == LengthLaw::geometric && options.walks.coupling != Coupling::antithetic &&
      options.walks.coupling != Coupling::both) {
    const double by_lemma = sparsity_bound(plan.walks, options.walks.p_halt, 1 - request.confidence);
    plan.sparsity_by_lemma = by_lemma < plan.sparsity_bound;
    plan.sparsity_bound = std::min(plan.sparsity_bound, by_lemma);
  }
  if (nodes == 0) return;
  const GrfMask mask(graph, options, as_tensor(feature_modulation(kernel, options)));
  const GraphFeatures& features = mask.features();
  plan.nnz_query = features.query.nnz();
  plan.nnz_key = features.key.nnz();
  plan.nonzeros_mean = static_cast<double>(plan.nnz_query) / static_cast<double>(nodes);
  plan.nonzeros_max = features.query.row_ptr.diff().max().item<std::int64_t>();
  if (mask.profile().entries <= kMostCounted) mask.entries();  // makes the pattern: then entries are counted
  const MaskProfile profile = mask.profile();
  plan.nnz_mask = static_cast<double>(profile.entries);
  plan.nnz_mask_counted = profile.entries_counted;
  AttentionShape shape;
  shape.num_nodes = nodes;
  shape.d = request.features;
  shape.d_v = request.channels;
  shape.learning = request.learned;
  AttentionOptions attention;
  attention.feature_map.kind = FeatureMapKind::identity;  // m counts features, not channels before the map
  plan.attention = plan_attention(profile, shape, attention);
  for (const PlanCandidate& candidate : plan.attention.candidates) {
    if (candidate.engine == plan.attention.engine) plan.predicted_seconds = candidate.predicted_cost;
  }
  measure_error(graph, kernel, options, mask, plan);
}

}  // namespace

double gaussian_quantile(double confidence) {
  check(confidence > 0 && confidence < 1, "gaussian_quantile: the confidence must be in (0, 1), got {}",
        confidence);
  return two_sided_quantile(1 - confidence);
}

FeaturePlan plan_features(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options,
                          const PlanOptions& request,
                          const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(request.error > 0 && std::isfinite(request.error), "plan_features: error must be positive, got {}",
        request.error);
  check(request.confidence > 0 && request.confidence < 1,
        "plan_features: confidence must be in (0, 1), got {}", request.confidence);
  check(request.features >= 1 && request.channels >= 1,
        "plan_features: features and channels must be positive, got {} and {}", request.features,
        request.channels);
  FeatureOptions checked = options;
  checked.walks.num_walks = kFirstPilotWalks;
  check_walk_options(checked.walks);
  FeaturePlan plan;
  if (request.scope == PlanScope::all_entries) plan.entries = distinct_entries(graph, options.ensembles);
  plan_theory(graph, kernel, checked, request, plan);
  plan_walks(graph, kernel, checked, request, progress, plan);
  plan_costs(graph, kernel, checked, request, plan);
  if (progress) progress(kPilotRounds + 1, kPilotRounds + 1);
  return plan;
}

EnsembleComparison compare_ensembles(const Graph& graph, const NodeKernel& kernel,
                                     const FeatureOptions& options, const PlanOptions& request,
                                     const std::function<void(std::int64_t, std::int64_t)>& progress) {
  EnsembleComparison comparison;
  constexpr std::int64_t kSteps = kPilotRounds + 1;
  const auto kinds = words<Ensembles>();
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    FeatureOptions own = options;
    own.ensembles = kinds[i].value;
    const auto first = static_cast<std::int64_t>(i) * kSteps,
               total = static_cast<std::int64_t>(kinds.size()) * kSteps;
    comparison.plans.push_back(
        {own.ensembles, plan_features(graph, kernel, own, request, [&](std::int64_t done, std::int64_t) {
           if (progress) progress(first + done, total);
         })});
  }
  const auto cheaper = [](const EnsemblePlan& a, const EnsemblePlan& b) {
    return a.plan.predicted_seconds < b.plan.predicted_seconds;
  };
  const EnsemblePlan &best = *std::min_element(comparison.plans.begin(), comparison.plans.end(), cheaper),
                     &worst = *std::max_element(comparison.plans.begin(), comparison.plans.end(), cheaper);
  comparison.best = best.ensembles;
  if (graph.num_nodes() == 0) return comparison;
  const double times = worst.plan.predicted_seconds / best.plan.predicted_seconds;
  comparison.advice =
      fmt::format("{} with {} walks: {}{:.{}f} times as fast as {} at this error", word_of(best.ensembles),
                  best.plan.walks, worst.plan.walks < worst.plan.walks_measured ? "at least " : "", times,
                  times < 10 ? 1 : 0, word_of(worst.ensembles));
  if (best.ensembles == Ensembles::asymmetric) {
    comparison.advice += fmt::format("; it sees {} hops far, the others {}", options.walks.max_hops,
                                     2 * options.walks.max_hops);
  }
  return comparison;
}

std::string EnsembleComparison::to_string() const {
  std::string text = fmt::format("{:<12} {:>8} {:>14} {:>12} {:>12} {:>12}  {}\n", "ensembles", "walks",
                                 "nnz of Phi", "nnz of M", "seconds", "rel. error", "engine");
  for (const EnsemblePlan& own : plans) {
    const FeaturePlan& plan = own.plan;
    const std::string error =
        std::isnan(plan.relative_error) ? "not measured" : fmt::format("{:.3f}", plan.relative_error);
    text +=
        fmt::format("{:<12} {:>8} {:>14.3g} {:>12.3g} {:>12.3g} {:>12}  {}{}\n", word_of(own.ensembles),
                    plan.walks, static_cast<double>(plan.nnz_query), plan.nnz_mask, plan.predicted_seconds,
                    error, word_of(plan.attention.engine),
                    plan.walks < plan.walks_measured
                        ? fmt::format(" (it needs {} walks: too many to sample here)", plan.walks_measured)
                        : "");
  }
  return advice.empty() ? text : text + advice + "\n";
}

template <>
std::span<const Word<PlanScope>> words<PlanScope>() {
  static constexpr Word<PlanScope> kWords[] = {
      {PlanScope::entry, "entry", "each entry by itself"},
      {PlanScope::all_entries, "all-entries", "all entries at once (union bound)"},
  };
  return kWords;
}

}  // namespace topomask
