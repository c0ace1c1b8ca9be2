#include "topomask/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <set>

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
constexpr std::int64_t kPilotRows = 64;
constexpr std::int64_t kAllRows = 256;          // graphs up to this size are compared in full
constexpr std::int64_t kPilotBudget = 1 << 25;  // walks in all repeats of one pilot
constexpr std::int64_t kMostSampled = 1 << 26;  // walks of one sample that is only there to be counted
constexpr std::int64_t kMostCounted = 1 << 24;  // entries of a mask whose pattern is made to count them
constexpr std::uint32_t kRowPurpose = 0x706c616e;

std::int64_t even(std::int64_t n) {
  return n + n % 2;
}

std::vector<std::int64_t> distinct_rows(std::int64_t num_nodes, std::int64_t count, std::uint64_t seed) {
  std::set<std::int64_t> rows;
  RandomStream random(seed, kRowPurpose);
  while (static_cast<std::int64_t>(rows.size()) < std::min(count, num_nodes)) {
    rows.insert(static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(num_nodes))));
  }
  return {rows.begin(), rows.end()};
}

// All rows of a small graph; else a random sample plus the rows most likely to be worst: the largest degree,
// and the node whose steps multiply the load most.
std::vector<std::int64_t> pilot_rows(const Graph& graph, std::uint64_t seed) {
  const std::int64_t n = graph.num_nodes();
  if (n <= kAllRows) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) all[i] = i;
    return all;
  }
  std::vector<std::int64_t> rows = distinct_rows(n, kPilotRows, seed);
  const CsrView view = graph.view();
  std::int64_t hub = 0, steep = 0;
  double steepest = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    if (view.degree(i) > view.degree(hub)) hub = i;
    for (std::int64_t e = view.row_ptr[i]; e < view.row_ptr[i + 1]; ++e) {
      const double growth =
          std::abs(static_cast<double>(view.weight[e])) * static_cast<double>(view.degree(i));
      if (growth > steepest) steepest = growth, steep = i;
    }
  }
  rows.insert(rows.end(), {hub, steep});
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
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
  const at::Tensor f = as_tensor(feature_modulation(kernel, options));
  const std::vector<std::int64_t> rows = pilot_rows(graph, options.walks.seed);
  const double z = two_sided_quantile((1 - request.confidence) / static_cast<double>(plan.entries));
  const std::int64_t nodes = std::max<std::int64_t>(1, graph.num_nodes());
  std::int64_t walks = kFirstPilotWalks;
  // Coupled walkers do not follow 1/n, so the pilot is repeated near its own answer while that can be
  // afforded.
  for (int round = 0; round < kPilotRounds; ++round) {
    const std::int64_t repeats = std::clamp<std::int64_t>(kPilotBudget / (nodes * walks), 8, 64);
    options.walks.num_walks = walks;
    const PilotResult pilot = run_pilot(graph, options, f, rows, repeats);
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
    if (plan.walks_measured > kPilotBudget / 8 / nodes) return;
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
  AttentionOptions attention;
  attention.feature_map.kind = FeatureMapKind::identity;  // m counts features, not channels before the map
  plan.attention = plan_attention(profile, shape, attention);
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

template <>
std::span<const Word<PlanScope>> words<PlanScope>() {
  static constexpr Word<PlanScope> kWords[] = {
      {PlanScope::entry, "entry", "the bound holds for each entry by itself"},
      {PlanScope::all_entries, "all-entries", "it holds for all entries at once (union bound)"},
  };
  return kWords;
}

}  // namespace topomask
