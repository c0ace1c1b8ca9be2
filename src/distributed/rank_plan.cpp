#include "topomask/rank_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/parallel.h"
#include "core/units.h"
#include "distributed/mask_parts.h"
#include "distributed/rank_survey.h"
#include "distributed/walk_messages.h"
#include "graph/part_rows.h"
#include "topomask/device_profile.h"
#include "topomask/memory_plan.h"

namespace topomask {
namespace {

constexpr double kNumber = 4;  // bytes of a float32, of an int32

// Bytes that a rank with these counts sends for its walks.
double bytes_of_walks(const RankCounts& counts, const RankPlanOptions& options, WalkRoute route) {
  if (route == WalkRoute::halo) {
    const double degree = counts.reach_rows > 0 ? counts.reach_entries / counts.reach_rows : 0;
    return counts.reach_rows * fetched_row_bytes(degree);
  }
  const double sets = counts.key_features > 0 ? 2 : 1;  // of walks
  const double cut_share = counts.entries > 0 ? counts.cut_entries / counts.entries : 0;
  return sets * walker_bytes(counts.nodes, cut_share, options.features.walks);
}

WalkRoute route_of(const RankCounts& mean, const RankPlanOptions& options) {
  return bytes_of_walks(mean, options, WalkRoute::halo) <= bytes_of_walks(mean, options, WalkRoute::walkers)
             ? WalkRoute::halo
             : WalkRoute::walkers;
}

// Before the first pass: for the graph, the walks and what the engine keeps of M. See distributed_graph.cpp
// and fetch_remote_keys.
double bytes_once_of(const RankCounts& counts, const RankPlanOptions& options, WalkRoute route,
                     Engine engine) {
  constexpr double kArrow = 16, kShare = 8, kWish = 8, kKeyEntry = 12, kKeyDeposit = 6;
  double bytes = bytes_of_walks(counts, options, route) + kNumber * counts.halo;  // who owns what
  if (options.normalisation == Normalisation::symmetric) bytes += 2 * kNumber * counts.sends;
  const bool one_hot = options.features.ensembles == Ensembles::asymmetric;
  // Whether W is symmetric, and which engine has less to do.
  const double columns = counts.query_columns + counts.key_columns;
  if (!one_hot) bytes += kArrow * counts.cut_entries + kNumber * counts.halo + kShare * columns;
  if (engine == Engine::feature) return bytes + kNumber * columns;
  bytes += kNumber * counts.mask_halo;
  if (!one_hot) {
    bytes += kNumber * columns + kWish * counts.introductions + kKeyEntry * counts.sent_key_entries +
             kKeyDeposit * counts.sent_key_deposits;
  }
  return bytes;
}

double forward_bytes(const RankCounts& counts, const RankPlanOptions& options, Engine engine) {
  return forward_bytes(counts, engine, options.heads, options.channels, options.values);
}

// Gradients of K and V go back to their owners; those of f, [heads, terms], to every rank. The feature engine
// computes its sums again, and moves their gradients the other way.
double backward_bytes(const RankCounts& counts, const RankPlanOptions& options, Engine engine) {
  const auto heads = static_cast<double>(options.heads), m = static_cast<double>(options.channels),
             d = static_cast<double>(options.values);
  const double of_f = heads * static_cast<double>(options.features.walks.max_hops + 1) * kNumber *
                      static_cast<double>(options.ranks - 1);
  if (engine == Engine::mask) return counts.mask_halo * heads * (m + d) * kNumber + of_f;
  return forward_bytes(counts, options, engine) +
         (counts.query_columns + counts.key_columns) * heads * m * (d + 1) * kNumber + of_f;
}

// At the peak of a step. Patterns hold a column, a row and a place (4 + 4 + 8 bytes) for each entry.
std::vector<RankMemory> memory_of(const RankCounts& c, const RankPlanOptions& options, Engine engine,
                                  const DeviceProfile& device) {
  constexpr double kPattern = 16, kPlaced = 16, kDeposit = 6, kWideIndex = 8;
  const auto heads = static_cast<double>(options.heads), m = static_cast<double>(options.channels),
             d = static_cast<double>(options.values);
  const bool one_hot = options.features.ensembles == Ensembles::asymmetric;
  const double entries = c.features + c.key_features, deposits = c.deposits + c.key_deposits;
  std::vector<RankMemory> parts;
  parts.push_back({"program", device.program});
  // As read and normalised: row_ptr, columns and weights, two numbers of each node.
  parts.push_back({"graph", 2 * (kWideIndex * c.nodes + 2 * kNumber * (c.entries + c.nodes + c.halo))});
  parts.push_back({"features", kWideIndex * c.nodes + kPlaced * entries + kDeposit * deposits});
  // Phi and Psi again, as the engine numbers their rows; those at the border twice.
  const double twice = 1 + (c.boundary_rows + c.mask_halo) / std::max(1.0, c.nodes);
  const double sides = one_hot || c.key_features > 0 ? 1 : 2;
  const double of_features = sides * twice * (entries * (kPattern + kWideIndex) + kDeposit * deposits);
  const double border_rows = std::min(c.nodes, c.boundary_rows + c.mask_halo) + c.mask_halo;
  if (engine == Engine::mask) {
    const double row = c.mask_entries / std::max(1.0, c.nodes);
    // Pattern, where (j, i) stands, and for each entry of Phi which places of a row of M its column takes.
    double pattern = (kPattern + kNumber) * c.mask_entries + of_features;
    if (!one_hot) pattern += c.features * (2 * std::ceil(row / 16) + 2 * kNumber);
    if (one_hot) pattern = of_features;
    parts.push_back({"mask: pattern", pattern});
    // Values of M; for the backward pass the product of each nonzero and the gradients of the values.
    parts.push_back({"mask: values", kNumber * heads * c.mask_entries * (options.learned ? 4 : 1)});
    parts.push_back({"rows of others", kNumber * heads * (m + d) * border_rows * (options.learned ? 3 : 2)});
  } else {
    parts.push_back({"features by column", of_features});
    const double columns = c.nodes + std::max(c.query_columns, c.key_columns);
    // One block of features at a time.
    constexpr auto kWorkspace = static_cast<double>(kColumnWorkspace);
    const double whole = 6 * kNumber * heads * m * (d + 1) * columns;
    parts.push_back({"sums of columns", std::min(whole, std::max(kWorkspace, whole / m))});
  }
  parts.push_back(
      {"q, k, v and the result", kNumber * heads * c.nodes * 2 * (m + d) * (options.learned ? 2 : 1)});
  // Temporary tensors, and what the allocator keeps: measured with `bench distributed`, see the tests.
  constexpr double kShareForAMoment = 0.25;
  double lasting = 0;
  for (const RankMemory& part : parts) lasting += part.bytes;
  parts.push_back({"temporary", kShareForAMoment * (lasting - device.program)});
  return parts;
}

// Attention in one process on a GPU: what is there at the highest point.
std::vector<RankMemory> memory_of_one(const RankCounts& c, const RankPlanOptions& options, Engine engine,
                                      const DeviceProfile& device) {
  ChainCounts counts;
  counts.nodes = c.nodes;
  counts.entries = c.entries;
  counts.features = c.features;
  counts.deposits = c.deposits;
  counts.key_features = c.key_features;
  counts.key_deposits = c.key_deposits;
  counts.pairs = c.pairs;
  counts.mask_entries = c.mask_entries;
  counts.ensembles = options.features.ensembles;
  counts.heads = options.heads;
  AttentionShape shape;
  shape.heads = options.heads;
  shape.num_nodes = static_cast<std::int64_t>(c.nodes);
  shape.d = options.channels;
  shape.d_v = options.values;
  shape.dtype = options.dtype;
  const MemoryPlan plan = plan_memory(counts, shape, engine, options.learned);
  std::vector<RankMemory> parts = {{"program", device.program}};
  double held = 0;
  for (const MemoryStep& step : plan.steps) {
    if (step.peak == plan.peak) {
      parts.push_back({step.name, plan.peak - held});
      break;
    }
    parts.push_back({step.name, step.lasting});
    held += step.lasting;
  }
  return parts;
}

double compute_seconds(const RankCounts& counts, const RankPlanOptions& options, Engine engine,
                       const DeviceProfile& device) {
  constexpr std::int64_t kAny = std::int64_t{1} << 62;
  const auto whole = [](double x) { return static_cast<std::int64_t>(std::min(x, 0x1p61)); };
  MaskProfile mask;
  mask.name = "grf";
  mask.num_nodes = whole(counts.nodes);
  mask.heads = options.heads;
  mask.entries = whole(counts.mask_entries);
  mask.entries_counted = false;
  const double factors = counts.features + (counts.key_features > 0 ? counts.key_features : counts.features);
  mask.value_multiply_adds = counts.pairs + counts.deposits + counts.key_deposits;
  mask.multiply_adds_per_column = factors;
  mask.bytes_per_column = 12 * factors;
  AttentionShape shape;
  shape.heads = options.heads;
  shape.num_nodes = mask.num_nodes;
  shape.dtype = options.dtype;
  shape.d = options.channels;
  shape.d_v = options.values;
  shape.device = c10::Device(device.type);
  shape.learning = options.learned;
  AttentionOptions attention;
  attention.feature_map.kind = FeatureMapKind::identity;  // m counts features
  attention.engine = engine;
  attention.max_workspace = kAny;  // whether it fits is said of the whole rank
  const AttentionPlan plan = plan_attention(mask, shape, attention, device.rates());
  for (const PlanCandidate& candidate : plan.candidates) {
    if (candidate.engine == engine) return candidate.predicted_cost;
  }
  return 0;
}

}  // namespace

double forward_bytes(const RankCounts& counts, Engine engine, std::int64_t heads, std::int64_t m,
                     std::int64_t d) {
  const double sent = engine == Engine::mask
                          ? counts.mask_sends * static_cast<double>(m + d)
                          : (counts.key_columns + counts.query_sends) * static_cast<double>(m * (d + 1));
  return sent * static_cast<double>(heads) * kNumber;
}

RankPlan plan_ranks(const std::string& graph, const RankPlanOptions& options,
                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check(options.ranks >= 1 && options.ranks <= kMostParts, "plan_ranks: ranks must be from 1 to {}, got {}",
        kMostParts, options.ranks);
  constexpr std::int64_t kMostNumbers = std::int64_t{1} << 20;
  for (const std::int64_t size : {options.heads, options.channels, options.values}) {
    check(size >= 1 && size <= kMostNumbers, "plan_ranks: heads, m and d must be 1 to {}, got {}, {} and {}",
          kMostNumbers, options.heads, options.channels, options.values);
  }
  check(std::isfinite(options.link_bandwidth) && options.link_bandwidth >= 0,
        "plan_ranks: the bandwidth must be positive, got {}", options.link_bandwidth);
  check(options.most_counted >= 1, "plan_ranks: most_counted must be positive, got {}", options.most_counted);
  const DeviceProfile& device = device_profile(options.device);
  const bool alone = options.ranks == 1 && device.type != c10::DeviceType::CPU;
  check(
      options.dtype == at::kFloat || alone,
      "plan_ranks: ranks work in float32, got {} for {} of them on {}; another dtype takes one rank on a GPU",
      c10::toString(options.dtype), options.ranks, options.device);
  check_walk_options(options.features.walks);
  const RankSurvey survey = survey_ranks(graph, options, progress);

  RankPlan plan;
  plan.nodes = survey.nodes;
  plan.ranks = options.ranks;
  plan.source = survey.source;
  plan.scaled = survey.scaled;
  plan.mean = survey.mean;
  plan.largest = survey.largest;
  const double keys = options.features.ensembles == Ensembles::asymmetric ? 0
                      : survey.mean.key_features > 0                      ? survey.mean.key_features
                                                                          : survey.mean.features;
  plan.engine = engine_for({survey.mean.pairs, survey.mean.features + keys},
                           static_cast<double>(options.channels), static_cast<double>(options.values));
  plan.route = route_of(survey.mean, options);
  plan.memory = (alone ? memory_of_one : memory_of)(survey.largest, options, plan.engine, device);
  for (const auto& [use, bytes] : plan.memory) plan.memory_total += bytes;
  plan.memory_limit = device.memory;
  plan.link_bandwidth = options.link_bandwidth > 0 ? options.link_bandwidth : device.link_bandwidth;
  if (options.ranks > 1) {
    plan.bytes_once = bytes_once_of(survey.mean, options, plan.route, plan.engine);
    plan.bytes_once_most = bytes_once_of(survey.largest, options, plan.route, plan.engine);
    plan.bytes_forward = forward_bytes(survey.mean, options, plan.engine);
    plan.bytes_forward_most = forward_bytes(survey.largest, options, plan.engine);
    if (options.learned) {
      plan.bytes_backward = backward_bytes(survey.mean, options, plan.engine);
      plan.bytes_backward_most = backward_bytes(survey.largest, options, plan.engine);
    }
    plan.seconds_exchange = plan.bytes_forward_most / plan.link_bandwidth +
                            static_cast<double>(options.ranks - 1) * device.link_latency;
  }
  plan.seconds_compute = compute_seconds(survey.largest, options, plan.engine, device);
  const double boundary = survey.largest.boundary_rows / std::max(1.0, survey.largest.nodes);
  plan.seconds_forward = plan.engine == Engine::mask
                             ? std::max(plan.seconds_exchange, (1 - boundary) * plan.seconds_compute) +
                                   boundary * plan.seconds_compute
                             : plan.seconds_exchange + plan.seconds_compute;
  if (progress) progress(3, 3);
  return plan;
}

std::string RankPlan::to_string() const {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<24}{}\n", name, value);
  };
  line("graph", fmt::format("{:.4g} nodes over {} ranks", static_cast<double>(nodes), ranks));
  line("numbers", source);
  line("engine", fmt::format("{}; walks by {}", word_of(engine), word_of(route)));
  text += fmt::format("\n{:<24}{:>14}{:>14}\n", "of a rank", "mean", "largest");
  const auto count = [&](std::string_view name, double RankCounts::*member) {
    text += fmt::format("{:<24}{:>14.4g}{:>14.4g}\n", name, mean.*member, largest.*member);
  };
  count("nodes", &RankCounts::nodes);
  count("entries of W", &RankCounts::entries);
  count("halo of W", &RankCounts::halo);
  count("entries of Phi", &RankCounts::features);
  count("entries of M", &RankCounts::mask_entries);
  count("halo of M", &RankCounts::mask_halo);
  const auto sent = [&](std::string_view name, double on_average, double most) {
    text += fmt::format("{:<24}{:>14}{:>14}\n", name, format_bytes(on_average), format_bytes(most));
  };
  sent("sent once", bytes_once, bytes_once_most);
  sent("sent per forward", bytes_forward, bytes_forward_most);
  if (bytes_backward > 0) sent("sent per backward", bytes_backward, bytes_backward_most);
  text += fmt::format("\n{:<24}{:>14}\n", "memory, largest rank", format_bytes(memory_total));
  for (const auto& [use, bytes] : memory) text += fmt::format("  {:<22}{:>14}\n", use, format_bytes(bytes));
  if (!fits()) {
    text += fmt::format("It does not fit: the device has {}. Take more ranks{}.\n",
                        format_bytes(memory_limit), ranks == 1 ? " or fewer walks" : "");
  }
  text += fmt::format("\n{:<24}{:>14}\n", "forward pass", format_seconds(seconds_forward));
  text += fmt::format("  {:<22}{:>14}\n", "computing", format_seconds(seconds_compute));
  text += fmt::format("  {:<22}{:>14}  at {}/s, while rows that need no other rank are computed\n",
                      "exchange", format_seconds(seconds_exchange), format_bytes(link_bandwidth));
  return text;
}

}  // namespace topomask
