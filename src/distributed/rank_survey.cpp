#include "distributed/rank_survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "graph/cpu/limits.h"
#include "graph/cpu/transform.h"
#include "graph/part_rows.h"
#include "topomask/graph_family.h"

namespace topomask {
namespace {

constexpr std::int64_t kPilotNodes = std::int64_t{1} << 18, kPilotParts = 64;
constexpr std::int64_t kBallParts = 16;

// How a count grows with the nodes of a part, the number of parts being the same.
enum class Growth {
  volume,  // as the nodes
  border,  // as the border: n^((D-1)/D) in D dimensions
  pairs,   // as the nodes; in random graphs faster, because of their hubs
};

Growth growth_of(double RankCounts::*member) {
  for (double RankCounts::*volume :
       {&RankCounts::nodes, &RankCounts::entries, &RankCounts::features, &RankCounts::deposits,
        &RankCounts::key_features, &RankCounts::key_deposits}) {
    if (member == volume) return Growth::volume;
  }
  if (member == &RankCounts::mask_entries || member == &RankCounts::pairs) return Growth::pairs;
  return Growth::border;
}

RankCounts mean_of(const std::vector<RankCounts>& ranks) {
  RankCounts mean;
  for (const RankCountField& field : rank_count_fields()) {
    for (const RankCounts& one : ranks)
      mean.*field.member += one.*field.member / static_cast<double>(ranks.size());
  }
  return mean;
}

RankCounts largest_of(const std::vector<RankCounts>& ranks) {
  RankCounts largest;
  for (const RankCountField& field : rank_count_fields()) {
    for (const RankCounts& one : ranks)
      largest.*field.member = std::max(largest.*field.member, one.*field.member);
  }
  return largest;
}

// No rank sees more nodes of others than there are.
void limit_to_graph(RankCounts& counts, double all_nodes) {
  const double others = std::max(0.0, all_nodes - counts.nodes);
  for (double RankCounts::*member :
       {&RankCounts::halo, &RankCounts::mask_halo, &RankCounts::query_columns, &RankCounts::key_columns})
    counts.*member = std::min(counts.*member, others);
  counts.boundary_rows = std::min(counts.boundary_rows, counts.nodes);
  counts.mask_entries = std::min(counts.mask_entries, counts.nodes * all_nodes);
}

Partition cut(const LoadedGraph& loaded, std::int64_t parts, const RankPlanOptions& options) {
  PartitionOptions how;
  how.parts = parts;
  how.method = options.method;
  how.points = loaded.points;
  return partition_graph(loaded.graph, how);
}

LoadedGraph load_for(const std::string& spec, const RankPlanOptions& options) {
  LoadOptions loading = options.loading;
  loading.points = options.method == PartitionMethod::morton;
  return load_graph(spec, loading);
}

// One graph cut into parts, and what they would hold and send.
struct Pilot {
  double nodes_of_part = 0;
  RankCounts mean, largest;
};

Pilot run_pilot_cut(const Graph& graph, const Partition& partition, const RankPlanOptions& options) {
  const std::vector<RankCounts> ranks =
      count_ranks(normalise(graph, options.normalisation), partition, options.features);
  return {static_cast<double>(graph.num_nodes()) / static_cast<double>(partition.parts), mean_of(ranks),
          largest_of(ranks)};
}

// x(n) through two points. Borders of D dimensions, with b = (D-1)/D: A n^b + B n^(2b-1), the border times
// the reach of the mask, and its corners.
double extrapolated(Growth growth, int dimension, double n1, double x1, double n2, double x2, double n) {
  if (x2 <= 0) return 0;
  const auto power = [&](double exponent) { return x2 * std::pow(n / n2, exponent); };
  if (growth == Growth::volume) return power(1);
  if (dimension == 0) {
    const double found = x1 > 0 ? std::log(x2 / x1) / std::log(n2 / n1) : 1;
    return power(std::clamp(found, growth == Growth::pairs ? 1.0 : 0.0, 2.0));
  }
  if (growth == Growth::pairs) return power(1);
  if (dimension == 1) return x2;  // two ends, however long
  const double b = static_cast<double>(dimension - 1) / dimension, c = 2 * b - 1;
  const double det = std::pow(n1, b) * std::pow(n2, c) - std::pow(n2, b) * std::pow(n1, c);
  const double border = (x1 * std::pow(n2, c) - x2 * std::pow(n1, c)) / det;
  const double corners = (std::pow(n1, b) * x2 - std::pow(n2, b) * x1) / det;
  const double found = border * std::pow(n, b) + corners * std::pow(n, c);
  // Counts that fluctuate can give a negative border; they then grow as borders do.
  return border > 0 && std::isfinite(found) ? found : power(b);
}

RankSurvey survey_family(const GraphFamily& family, const RankPlanOptions& options,
                         const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::int64_t parts = std::min(options.ranks, kPilotParts);
  const std::int64_t size = std::min(kPilotNodes, options.most_counted);
  const std::array<std::string, 2> specs = {family.resized(size / 4), family.resized(size)};
  std::array<Pilot, 2> pilots;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const LoadedGraph loaded = load_for(specs[i], options);
    pilots[i] = run_pilot_cut(loaded.graph, cut(loaded, parts, options), options);
    if (progress) progress(static_cast<std::int64_t>(i) + 1, static_cast<std::int64_t>(specs.size()) + 1);
  }
  RankSurvey survey;
  survey.nodes = family.nodes;
  survey.scaled = true;
  const double n = static_cast<double>(family.nodes) / static_cast<double>(options.ranks);
  const Pilot &small = pilots[0], &large = pilots[1];
  for (const RankCountField& field : rank_count_fields()) {
    for (RankCounts RankSurvey::*which : {&RankSurvey::mean, &RankSurvey::largest}) {
      RankCounts Pilot::*of = which == &RankSurvey::mean ? &Pilot::mean : &Pilot::largest;
      survey.*which.*field.member =
          extrapolated(growth_of(field.member), family.dimension, small.nodes_of_part,
                       small.*of.*field.member, large.nodes_of_part, large.*of.*field.member, n);
    }
  }
  for (RankCounts RankSurvey::*which : {&RankSurvey::mean, &RankSurvey::largest})
    limit_to_graph(survey.*which, static_cast<double>(family.nodes));
  survey.largest = largest_of({survey.mean, survey.largest});  // each has a power of its own
  survey.source =
      fmt::format("counted on {} and {} cut into {} parts by {}, and scaled {}", specs[0], specs[1], parts,
                  word_of(options.method),
                  family.dimension == 0 ? std::string("by the power laws between them")
                                        : fmt::format("with the border of parts in {} dimension{}",
                                                      family.dimension, family.dimension == 1 ? "" : "s"));
  return survey;
}

// Own nodes of a shard and the edges between them. Its columns are local: those of others come last.
Graph inner_graph(const Shard& shard) {
  const std::int64_t own = shard.nodes.numel();
  const std::int64_t* row_ptr = shard.row_ptr.const_data_ptr<std::int64_t>();
  const std::int32_t* col = shard.col.const_data_ptr<std::int32_t>();
  const float* weight = shard.weight.const_data_ptr<float>();
  CsrArrays found;
  for (std::int64_t i = 0; i < own; ++i) {
    for (std::int64_t e = row_ptr[i]; e < row_ptr[i + 1]; ++e) {
      if (col[e] >= own) continue;
      found.col.push_back(col[e]);
      found.weight.push_back(weight[e]);
    }
    found.row_ptr.push_back(static_cast<std::int64_t>(found.col.size()));
  }
  return Graph::from_csr(std::move(found), shard.directed);
}

// Rows and halos of the parts as they are; what walks and masks make of them by the ratios of a pilot.
RankSurvey survey_by_ratios(const std::vector<PartSummary>& parts, const Graph& pilot_graph,
                            const RankPlanOptions& options) {
  LoadedGraph pilot_loaded;
  pilot_loaded.graph = pilot_graph;
  RankPlanOptions without_points = options;
  if (options.method == PartitionMethod::morton) without_points.method = PartitionMethod::metis;
  const RankCounts pilot =
      run_pilot_cut(pilot_graph, cut(pilot_loaded, kBallParts, without_points), options).mean;
  RankSurvey survey;
  survey.scaled = true;
  std::vector<RankCounts> ranks;
  for (const PartSummary& part : parts) {
    const auto nodes = static_cast<double>(part.nodes), halo = static_cast<double>(part.halo);
    RankCounts counts;
    for (const RankCountField& field : rank_count_fields()) {
      const bool at_border = growth_of(field.member) == Growth::border;
      const double base = at_border ? pilot.halo : pilot.nodes;
      counts.*field.member = base > 0 ? pilot.*field.member / base * (at_border ? halo : nodes) : 0;
    }
    counts.nodes = nodes;
    counts.entries = static_cast<double>(part.entries);
    counts.halo = halo;
    counts.sends = static_cast<double>(part.sends);
    survey.nodes += part.nodes;
    ranks.push_back(counts);
  }
  for (RankCounts& counts : ranks) limit_to_graph(counts, static_cast<double>(survey.nodes));
  survey.mean = mean_of(ranks);
  survey.largest = largest_of(ranks);
  return survey;
}

std::optional<std::string> shard_folder(const std::string& spec) {
  constexpr std::string_view kShards = "shards:";
  if (!spec.starts_with(kShards)) return std::nullopt;
  return spec.substr(kShards.size());
}

}  // namespace

RankSurvey survey_ranks(const std::string& graph, const RankPlanOptions& options,
                        const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::optional<GraphFamily> family = graph_family(graph);
  if (family) check_num_nodes("plan_ranks", family->nodes);
  if (family && family->nodes > options.most_counted) return survey_family(*family, options, progress);

  const std::optional<std::string> folder = shard_folder(graph);
  const std::optional<ShardIndex> index =
      folder ? std::optional(read_shard_index(*folder)) : std::optional<ShardIndex>();
  const bool own_parts = index && index->parts == options.ranks;
  if (index && index->nodes > options.most_counted) {
    check(own_parts,
          "plan_ranks: {} has {} shards and too many nodes to be cut again here; plan for {} ranks, or "
          "partition "
          "it for {}",
          *folder, index->parts, index->parts, options.ranks);
    const auto largest =
        std::max_element(index->shards.begin(), index->shards.end(),
                         [](const PartSummary& a, const PartSummary& b) { return a.nodes < b.nodes; }) -
        index->shards.begin();
    const Graph inner = inner_graph(read_shard(*folder, largest));
    if (progress) progress(1, 3);
    const Graph pilot =
        Graph::from_csr(ball(inner.view(), std::min(kPilotNodes, options.most_counted)), inner.directed);
    RankSurvey survey = survey_by_ratios(index->shards, pilot, options);
    survey.source = fmt::format(
        "rows and halos of the {} shards of {}; walks and the mask by their ratio to these, counted on {} "
        "nodes of "
        "shard {} cut into {} parts",
        index->parts, *folder, pilot.num_nodes(), largest, kBallParts);
    return survey;
  }

  RankSurvey survey;
  LoadedGraph loaded;
  Partition partition;
  if (own_parts) {
    ShardedGraph whole = read_shards(*folder);
    loaded.graph = std::move(whole.graph);
    partition = std::move(whole.partition);
  } else {
    loaded = load_for(graph, options);
    partition = cut(loaded, options.ranks, options);
  }
  if (progress) progress(1, 3);
  if (loaded.graph.num_nodes() > options.most_counted) {
    const Graph pilot = Graph::from_csr(
        ball(loaded.graph.view(), std::min(kPilotNodes, options.most_counted)), loaded.graph.directed);
    survey = survey_by_ratios(summarise(loaded.graph, partition).parts, pilot, options);
    survey.source = fmt::format(
        "rows and halos of this graph cut by {}; walks and the mask by their ratio to these, counted on {} "
        "of its "
        "nodes cut into {} parts",
        word_of(options.method), pilot.num_nodes(), kBallParts);
    return survey;
  }
  const Pilot all = run_pilot_cut(loaded.graph, partition, options);
  survey.nodes = loaded.graph.num_nodes();
  survey.mean = all.mean;
  survey.largest = all.largest;
  survey.source = own_parts ? fmt::format("counted on the shards of {}", *folder)
                            : fmt::format("counted on this graph, cut by {}", word_of(options.method));
  return survey;
}

}  // namespace topomask
