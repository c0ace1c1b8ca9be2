#include "walks/gpu.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/cuda/primitives.h"
#include "core/cuda_launch.h"
#include "core/gpu.h"
#include "core/tensors.h"
#include "walks/cuda/modulate.h"
#include "walks/cuda/sample.h"

namespace topomask {

namespace {

constexpr std::int64_t kMaxStagedDeposits = 96
                                            << 20;  // of 14 bytes: more rows than that are sampled in turns

int bits_for(std::int64_t largest) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(largest)));
}

struct PlanOnDevice {
  DeviceWalkPlan plan;
  at::Tensor tables;  // keeps the long tables alive
};

PlanOnDevice plan_on_device(const WalkPlan& plan, const at::Device& device) {
  PlanOnDevice result;
  DeviceWalkPlan& p = result.plan;
  p.num_walks = static_cast<std::int32_t>(plan.num_walks);
  p.max_hops = plan.max_hops;
  p.always_max = plan.always_max;
  p.antithetic = plan.antithetic;
  p.repelling = plan.repelling;
  p.weighted_steps = plan.weighted_steps;
  p.importance_weights = plan.importance_weights;
  p.key0 = plan.key0;
  p.key1 = plan.key1;
  p.ensemble = plan.ensemble;
  if (plan.max_hops <= DeviceWalkPlan::kInlineHops) {
    std::copy(plan.halt_below.begin(), plan.halt_below.end(), p.halt_inline);
    std::copy(plan.inverse_continue.begin(), plan.inverse_continue.end(), p.continue_inline);
    return result;
  }
  check(capture_id(device) == 0, "walks: a CUDA graph can capture walks of up to {} hops, got {}",
        DeviceWalkPlan::kInlineHops, plan.max_hops);
  const std::int64_t hops = plan.max_hops;
  at::Tensor host = at::empty({2, hops}, at::kInt);
  std::memcpy(host.data_ptr<std::int32_t>(), plan.halt_below.data(), 4 * static_cast<std::size_t>(hops));
  std::memcpy(host.data_ptr<std::int32_t>() + hops, plan.inverse_continue.data(),
              4 * static_cast<std::size_t>(hops));
  result.tables = host.to(device);
  const auto* words = result.tables.const_data_ptr<std::int32_t>();
  p.halt_table = reinterpret_cast<const std::uint32_t*>(words);
  p.continue_table = reinterpret_cast<const float*>(words + hops);
  return result;
}

struct GraphOnDevice {
  DeviceGraph graph;
  at::Tensor row_ptr, col, weight, below, factor;
};

GraphOnDevice graph_on_device(const Graph& graph, const WalkPlan& plan, cudaStream_t stream) {
  GraphOnDevice result;
  check(graph.row_ptr.scalar_type() == at::kLong && graph.col.scalar_type() == at::kInt &&
            graph.weight.scalar_type() == at::kFloat && graph.col.device() == graph.row_ptr.device() &&
            graph.weight.device() == graph.row_ptr.device() && graph.weight.size(0) == graph.col.size(0),
        "walks: expected row_ptr int64, col int32 and weight float32 on one device, got {}, {} and {}",
        describe(graph.row_ptr), describe(graph.col), describe(graph.weight));
  // Kernels find the rows of such a graph without looking at row_ptr.
  check(graph.out_degree < 0 || graph.num_entries() == graph.num_nodes() * graph.out_degree,
        "walks: a graph of out_degree {} and {} nodes must have {} entries, got {}", graph.out_degree,
        graph.num_nodes(), graph.num_nodes() * graph.out_degree, graph.num_entries());
  result.row_ptr = graph.row_ptr.contiguous();
  result.col = graph.col.contiguous();
  result.weight = graph.weight.contiguous();
  DeviceGraph& g = result.graph;
  g.num_nodes = graph.num_nodes();
  g.out_degree = graph.out_degree;
  g.row_ptr = result.row_ptr.const_data_ptr<std::int64_t>();
  g.col = result.col.const_data_ptr<std::int32_t>();
  g.weight = result.weight.const_data_ptr<float>();
  if (plan.weighted_steps) {
    result.below = at::empty({graph.num_entries()}, result.col.options());
    result.factor = at::empty({graph.num_entries()}, result.weight.options());
    auto* below = reinterpret_cast<std::uint32_t*>(result.below.data_ptr<std::int32_t>());
    check_cuda(
        prepare_weighted_steps(g, plan.importance_weights, below, result.factor.data_ptr<float>(), stream),
        "weighted steps");
    g.edge_below = below;
    g.edge_factor = result.factor.const_data_ptr<float>();
  }
  return result;
}

std::int32_t blocks_for(std::int64_t rows) {
  const std::int64_t resident = 2 * at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  return static_cast<std::int32_t>(std::min(rows, resident));
}

// Mean and variance of a walk's length, from S(k) = product of the probabilities to go on.
struct LengthMoments {
  double mean = 0, variance = 0;
};

LengthMoments length_moments(const WalkPlan& plan) {
  double survival = 1, mean = 0, square = 0;
  for (int k = 1; k <= plan.max_hops; ++k) {
    survival *= 1 - static_cast<double>(plan.halt_below[k - 1]) * 0x1p-32;
    mean += survival;
    square += (2 * k - 1) * survival;
  }
  return {mean, std::max(square - mean * mean, 0.0)};
}

// Where rows wait until all sizes are known.
struct Stage {
  at::Tensor load, hop, col, first;

  Stage(std::int64_t deposits, const at::TensorOptions& on)
      : load(at::empty({deposits}, on.dtype(at::kFloat))),
        hop(at::empty({deposits}, on.dtype(at::kShort))),
        col(at::empty({deposits}, on.dtype(at::kInt))),
        first(at::empty({deposits}, on.dtype(at::kInt))) {}

  void enter(FeatureRowsArguments& a) const {
    a.stage_load = load.data_ptr<float>();
    a.stage_hop = hop.data_ptr<std::int16_t>();
    a.stage_col = col.data_ptr<std::int32_t>();
    a.stage_first = first.data_ptr<std::int32_t>();
    a.stage_capacity = load.size(0);
  }
  void enter(CompactArguments& a, int which) const {
    a.stage_load[which] = load.const_data_ptr<float>();
    a.stage_hop[which] = hop.const_data_ptr<std::int16_t>();
    a.stage_col[which] = col.const_data_ptr<std::int32_t>();
    a.stage_first[which] = first.const_data_ptr<std::int32_t>();
  }
};

// Chooses the team for rows of up to `visits` visits; the scratch of teams that outgrow shared memory stays
// in `scratch`.
void choose_team(FeatureRowsArguments& a, std::int64_t visits, const at::Tensor& like, at::Tensor& scratch) {
  check(visits <= std::int64_t{1} << 28,
        "walks: the walks of one node make {} visits, more than a GPU can sort", visits);
  const bool enumerate = a.out_degree >= 0;
  a.capacity =
      static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(visits, 32))));
  a.team_bytes = feature_team_bytes(a.capacity, a.plan, enumerate);
  a.team_is_block = a.team_bytes > kMaxWarpTeamBytes;
  a.num_blocks = blocks_for(a.num_rows);
  a.scratch = nullptr;
  if (a.team_bytes > kMaxBlockTeamBytes) {
    scratch = bytes_on(like, a.team_bytes * static_cast<std::size_t>(a.num_blocks));
    a.scratch = reinterpret_cast<char*>(scratch.data_ptr<std::uint8_t>());
  }
}

// Rows on their way: their deposits in a stage, and how many there are.
struct StagedRows {
  at::Tensor counts;    // [2, rows] int32: entries and deposits of each
  at::Tensor offset;    // [rows+1, 2] int64: their sums
  at::Tensor stage_at;  // [rows] int64
  at::Tensor overflow;  // [rows] int32: rows that did not fit
  at::Tensor status;    // FeatureStatus
  at::Tensor scratch;
  Stage stage;
  FeatureRowsArguments arguments;

  StagedRows(std::int64_t rows, std::int64_t deposits, const at::TensorOptions& on)
      : counts(at::empty({2, rows}, on.dtype(at::kInt))),
        offset(at::empty({rows + 1, 2}, on.dtype(at::kLong))),
        stage_at(at::empty({rows}, on.dtype(at::kLong))),
        overflow(at::empty({rows}, on.dtype(at::kInt))),
        status(at::zeros({sizeof(FeatureStatus) / sizeof(std::int64_t)}, on.dtype(at::kLong))),
        stage(deposits, on) {}

  const OffsetPair* offsets() const {
    return reinterpret_cast<const OffsetPair*>(offset.const_data_ptr<std::int64_t>());
  }
};

// What the host must know before it can allocate: the sizes and the counters.
struct Totals {
  OffsetPair sizes;
  FeatureStatus status;
};

void scan_sizes(const StagedRows& staged, cudaStream_t stream) {
  const std::int64_t rows = staged.counts.size(1);
  const std::size_t bytes = ScanCountPairs::workspace_bytes(rows);
  const at::Tensor workspace = bytes_on(staged.counts, bytes);
  const auto* count = staged.counts.const_data_ptr<std::int32_t>();
  auto* offset = reinterpret_cast<OffsetPair*>(staged.offset.data_ptr<std::int64_t>());
  check_cuda(ScanCountPairs::run(count, count + rows, rows, offset, workspace.data_ptr(), bytes, stream),
             "walk features");
}

// Waits for the device.
Totals read_totals(const StagedRows& staged, cudaStream_t stream) {
  const at::Tensor host = at::empty({static_cast<std::int64_t>(sizeof(Totals))},
                                    at::TensorOptions(at::kByte).pinned_memory(true));
  auto* totals = reinterpret_cast<Totals*>(host.data_ptr());
  check_cuda(cudaMemcpyAsync(&totals->sizes, staged.offsets() + staged.counts.size(1), sizeof(OffsetPair),
                             cudaMemcpyDeviceToHost, stream),
             "walk features");
  check_cuda(cudaMemcpyAsync(&totals->status, staged.status.data_ptr(), sizeof(FeatureStatus),
                             cudaMemcpyDeviceToHost, stream),
             "walk features");
  check_cuda(cudaStreamSynchronize(stream), "walk features");
  return *totals;
}

// The walks of one call, on the device.
struct Ensemble {
  GraphOnDevice graph;
  PlanOnDevice plan;
  int walk_bits = 0;
  cudaStream_t stream = nullptr;
};

// Samples rows into a stage of `deposits`, enumerating all walks where out_degree is not negative. Nothing is
// waited for.
StagedRows stage_rows(const Ensemble& walks, std::int64_t first_row, std::int64_t num_rows,
                      std::int32_t out_degree, std::int64_t most_visits, std::int64_t deposits) {
  StagedRows staged(num_rows, deposits, walks.graph.row_ptr.options());
  FeatureRowsArguments& a = staged.arguments;
  a.plan = walks.plan.plan;
  a.graph = walks.graph.graph;
  a.first_row = static_cast<std::int32_t>(first_row);
  a.num_rows = static_cast<std::int32_t>(num_rows);
  a.out_degree = out_degree;
  a.walk_bits = walks.walk_bits;
  a.entries = staged.counts.data_ptr<std::int32_t>();
  a.deposits = a.entries + num_rows;
  a.stage_at = staged.stage_at.data_ptr<std::int64_t>();
  a.status = reinterpret_cast<FeatureStatus*>(staged.status.data_ptr<std::int64_t>());
  a.overflow_list = staged.overflow.data_ptr<std::int32_t>();
  staged.stage.enter(a);
  choose_team(a, most_visits, walks.graph.row_ptr, staged.scratch);
  check_cuda(sample_feature_rows(a, walks.stream), "walk features");
  scan_sizes(staged, walks.stream);
  return staged;
}

struct SampledRows {
  at::Tensor row_ptr, col, deposit_ptr, hop, load;
  bool regular = true;
};

SampledRows empty_rows(std::int64_t num_rows, std::int64_t entries, std::int64_t deposits,
                       const at::TensorOptions& on) {
  SampledRows rows;
  rows.row_ptr = at::empty({num_rows + 1}, on.dtype(at::kLong));
  rows.col = at::empty({entries}, on.dtype(at::kInt));
  rows.deposit_ptr = at::empty({entries + 1}, on.dtype(at::kLong));
  rows.hop = at::empty({deposits}, on.dtype(at::kShort));
  rows.load = at::empty({deposits}, on.dtype(at::kFloat));
  return rows;
}

// Staged rows at their places, with room for this many entries and deposits. `second`: of rows that were done
// again.
SampledRows put_in_place(const StagedRows& staged, const Stage& second, std::int64_t entries,
                         std::int64_t deposits, cudaStream_t stream) {
  const std::int64_t num_rows = staged.counts.size(1);
  const SampledRows rows = empty_rows(num_rows, entries, deposits, staged.counts.options());
  CompactArguments c;
  c.num_rows = static_cast<std::int32_t>(num_rows);
  staged.stage.enter(c, 0);
  second.enter(c, 1);
  c.stage_at = staged.stage_at.const_data_ptr<std::int64_t>();
  c.offset = staged.offsets();
  c.capacity = entries;
  c.row_ptr = rows.row_ptr.data_ptr<std::int64_t>();
  c.col = rows.col.data_ptr<std::int32_t>();
  c.deposit_ptr = rows.deposit_ptr.data_ptr<std::int64_t>();
  c.hop = rows.hop.data_ptr<std::int16_t>();
  c.load = rows.load.data_ptr<float>();
  check_cuda(compact_feature_rows(c, stream), "walk features");
  return rows;
}

// All walks of all nodes, with room for this many entries and deposits, where the device can enumerate them
// in place. Nothing is waited for.
std::optional<SampledRows> enumerated_rows(const Ensemble& walks, std::int64_t out_degree,
                                           std::int64_t entries, std::int64_t deposits) {
  const at::TensorOptions on = walks.graph.row_ptr.options();
  FeatureRowsArguments a;
  a.plan = walks.plan.plan;
  a.graph = walks.graph.graph;
  a.num_rows = static_cast<std::int32_t>(a.graph.num_nodes);
  a.out_degree = static_cast<std::int32_t>(out_degree);
  if (!enumerates_in_place(a)) return std::nullopt;
  constexpr std::int64_t kStatusWords = sizeof(FeatureStatus) / sizeof(std::int64_t);
  const at::Tensor scratch = at::zeros({kStatusWords + enumeration_tiles(a.num_rows)}, on);
  auto* words = scratch.data_ptr<std::int64_t>();
  a.status = reinterpret_cast<FeatureStatus*>(words);
  SampledRows rows = empty_rows(a.num_rows, entries, deposits, on);
  EnumeratedRows out;
  out.capacity = entries;
  out.row_ptr = rows.row_ptr.data_ptr<std::int64_t>();
  out.col = rows.col.data_ptr<std::int32_t>();
  out.deposit_ptr = rows.deposit_ptr.data_ptr<std::int64_t>();
  out.hop = rows.hop.data_ptr<std::int16_t>();
  out.load = rows.load.data_ptr<float>();
  out.tile_words = reinterpret_cast<unsigned long long*>(words + kStatusWords);
  check_cuda(enumerate_in_place(a, out, walks.stream), "walk features");
  return rows;
}

// Rows in exactly the memory they need; waits for the device.
SampledRows sample_rows(const Ensemble& walks, std::int64_t first_row, std::int64_t num_rows,
                        std::int32_t out_degree, std::int64_t most_visits, std::int64_t deposits) {
  StagedRows staged = stage_rows(walks, first_row, num_rows, out_degree, most_visits, deposits);
  Totals totals = read_totals(staged, walks.stream);
  if (totals.status.irregular != 0) {
    SampledRows none;
    none.regular = false;
    return none;
  }

  // The few rows that did not fit once more, with room for all their visits.
  const FeatureStatus first = totals.status;
  const Stage second(static_cast<std::int64_t>(first.overflow_visits), walks.graph.row_ptr.options());
  at::Tensor list, scratch;
  if (first.overflow_rows > 0) {
    FeatureRowsArguments a = staged.arguments;
    list = staged.overflow.clone();
    staged.status.zero_();
    a.num_rows = static_cast<std::int32_t>(first.overflow_rows);
    a.row_list = list.const_data_ptr<std::int32_t>();
    a.stage_mark = kSecondStage;
    second.enter(a);
    choose_team(a, static_cast<std::int64_t>(first.overflow_most), walks.graph.row_ptr, scratch);
    check_cuda(sample_feature_rows(a, walks.stream), "walk features");
    scan_sizes(staged, walks.stream);
    totals = read_totals(staged, walks.stream);
  }
  return put_in_place(staged, second, totals.sizes.first, totals.sizes.second, walks.stream);
}

// As ensemble_is_exhaustive, given the out-degree.
bool ensemble_enumerates(const WalkPlan& plan, std::int64_t degree) {
  std::int64_t remaining = plan.num_walks;
  for (int hop = 0; hop < plan.max_hops && degree > 1; ++hop) {
    if (remaining % degree != 0) return false;
    remaining /= degree;
  }
  return degree >= 0;
}

// The out-degree that all nodes with neighbours have, or -1; waits for the device.
std::int64_t common_degree(const Graph& graph) {
  const at::Tensor degrees = graph.row_ptr.diff(), most = degrees.max();
  const at::Tensor uniform = degrees.eq(most).logical_or(degrees.eq(0)).all();
  return uniform.item<bool>() ? most.item<std::int64_t>() : -1;
}

std::int64_t walks_up_to(std::int64_t degree, int hops) {
  std::int64_t walks = 1, total = 1;
  for (int hop = 0; hop < hops && degree > 0; ++hop) total += walks *= degree;
  return total;
}

WalkFeatures assemble(std::vector<SampledRows> pieces, std::int64_t num_nodes, int max_hops, bool exact) {
  WalkFeatures features;
  features.num_columns = num_nodes;
  features.max_hops = max_hops;
  features.exact = exact;
  const auto joined = [&](at::Tensor SampledRows::*part) {
    if (pieces.size() == 1) return pieces[0].*part;
    // No piece is needed twice: memory never holds more than one array both in pieces and joined.
    std::vector<at::Tensor> parts;
    for (SampledRows& piece : pieces) parts.push_back(std::exchange(piece.*part, {}));
    return at::cat(parts);
  };
  // Offsets of later pieces follow those of earlier ones, whose last is their first.
  std::int64_t entries = 0, deposits = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    SampledRows& piece = pieces[i];
    const std::int64_t nnz = piece.col.size(0), count = piece.hop.size(0);
    if (i > 0) {
      piece.row_ptr = piece.row_ptr.slice(0, 1) + entries;
      piece.deposit_ptr = piece.deposit_ptr.slice(0, 1) + deposits;
    }
    entries += nnz;
    deposits += count;
  }
  features.deposit_ptr = joined(&SampledRows::deposit_ptr);
  features.row_ptr = joined(&SampledRows::row_ptr);
  features.col = joined(&SampledRows::col);
  features.hop = joined(&SampledRows::hop);
  features.load = joined(&SampledRows::load);
  return features;
}

}  // namespace

at::Tensor sample_walks_cuda(const Graph& graph, const WalkPlan& plan, int max_hops) {
  const CudaLaunch launch(graph.row_ptr);
  const GraphOnDevice on_device = graph_on_device(graph, plan, launch.stream);
  const PlanOnDevice device_plan = plan_on_device(plan, graph.row_ptr.device());
  const at::Tensor paths =
      at::empty({graph.num_nodes(), plan.num_walks, max_hops + 1}, on_device.col.options());
  PathArguments a;
  a.plan = device_plan.plan;
  a.graph = on_device.graph;
  a.hops = max_hops;
  a.paths = paths.data_ptr<std::int32_t>();
  a.team_bytes = feature_team_bytes(0, a.plan, false);
  a.num_blocks = blocks_for(graph.num_nodes());
  at::Tensor scratch;
  if (a.team_bytes > kMaxBlockTeamBytes) {
    scratch = bytes_on(graph.row_ptr, a.team_bytes * static_cast<std::size_t>(a.num_blocks));
    a.scratch = reinterpret_cast<char*>(scratch.data_ptr<std::uint8_t>());
  }
  check_cuda(sample_paths(a, launch.stream), "walks");
  return paths;
}

WalkFeatures sample_walk_features_cuda(const Graph& graph, const WalkPlan& plan, int max_hops, bool padded) {
  const int walk_bits = bits_for(plan.num_walks - 1);
  check(walk_bits + bits_for(max_hops) <= 32,
        "walks: {} walks of {} hops are more than a GPU can number; sample them on the CPU", plan.num_walks,
        max_hops);
  const bool captured = capture_id(graph.device()) != 0;
  padded = padded || captured;
  const std::int64_t nodes = graph.num_nodes();
  const bool may_enumerate = plan.repelling && !plan.weighted_steps && plan.always_max;
  if (nodes == 0) {
    WalkFeatures nothing = one_hot_features(0, graph.device());
    nothing.max_hops = max_hops;
    nothing.exact = may_enumerate;
    return nothing;
  }
  const CudaLaunch launch(graph.row_ptr);
  const Ensemble walks{graph_on_device(graph, plan, launch.stream),
                       plan_on_device(plan, graph.row_ptr.device()), walk_bits, launch.stream};
  const LengthMoments length = length_moments(plan);
  const double mean = 1 + static_cast<double>(plan.num_walks) * length.mean;
  // Antithetic partners are coupled; twice the variance bounds that.
  const double variance = (plan.antithetic ? 2 : 1) * static_cast<double>(plan.num_walks) * length.variance;
  const std::int64_t most_visits = 1 + plan.num_walks * plan.max_hops;

  // The degree decides whether the walks are enumerated, and bounds their number.
  const auto finish = [&](WalkFeatures features, std::int64_t degree) {
    features.longest_row = std::min(most_deposits(plan, degree, nodes), nodes);
    features.padded = padded;
    return features;
  };
  const auto sample_padded = [&](std::int64_t degree) {
    const bool enumerates = may_enumerate && ensemble_enumerates(plan, degree);
    const std::int64_t of_row = most_deposits(plan, degree, nodes);
    check(
        of_row <= kMaxStagedDeposits / nodes,
        "walks: padded features of {} nodes have room for {} deposits each, more than {} in all; sample them "
        "without padding",
        nodes, of_row, kMaxStagedDeposits);
    const std::int64_t entries = nodes * std::min(of_row, nodes), deposits = nodes * of_row;
    if (enumerates) {
      if (auto rows = enumerated_rows(walks, degree, entries, deposits))
        return finish(assemble({std::move(*rows)}, nodes, max_hops, /*exact=*/true), degree);
    }
    const StagedRows staged =
        stage_rows(walks, 0, nodes, enumerates ? static_cast<std::int32_t>(degree) : -1,
                   enumerates ? walks_up_to(degree, plan.max_hops) : most_visits, deposits);
    const Stage none(0, walks.graph.row_ptr.options());
    return finish(
        assemble({put_in_place(staged, none, entries, deposits, launch.stream)}, nodes, max_hops, enumerates),
        degree);
  };
  if (padded) {
    const bool unknown = may_enumerate && graph.out_degree < 0;
    check(!unknown || !captured,
          "walks: the degrees of the graph decide whether its walks are enumerated, and a CUDA graph cannot "
          "wait for them; expected a graph with a known out_degree, as knn_graph makes");
    return sample_padded(unknown ? common_degree(graph) : graph.out_degree);
  }

  const auto sample_all = [&](std::int32_t out_degree, std::int64_t visits, double mean_visits,
                              double variance_of_visits) {
    const auto turns = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil(mean_visits * static_cast<double>(nodes) /
                                               static_cast<double>(kMaxStagedDeposits))));
    const std::int64_t rows_a_turn = (nodes + turns - 1) / turns;
    std::vector<SampledRows> pieces;
    for (std::int64_t first = 0; first < nodes; first += rows_a_turn) {
      const std::int64_t rows = std::min(rows_a_turn, nodes - first);
      // Eight standard deviations more than expected; rows beyond that would be done again.
      const auto expected = static_cast<double>(rows);
      const auto staged = static_cast<std::int64_t>(mean_visits * expected +
                                                    8 * std::sqrt(variance_of_visits * expected) + 1);
      pieces.push_back(sample_rows(walks, first, rows, out_degree, visits, staged));
      if (!pieces.back().regular) break;
    }
    return pieces;
  };

  if (may_enumerate) {
    // The number of entries tells the out-degree if it is the same everywhere, and the kernel notices if it
    // is not: the host need not wait for the degrees.
    const std::int64_t guess = graph.num_entries() % nodes == 0 ? graph.num_entries() / nodes : -1;
    for (const bool look : {false, true}) {
      const std::int64_t degree = graph.out_degree >= 0 ? graph.out_degree
                                  : look                ? common_degree(graph)
                                                        : guess;
      if (!ensemble_enumerates(plan, degree)) continue;
      const std::int64_t visits = walks_up_to(degree, plan.max_hops);
      std::vector<SampledRows> pieces =
          sample_all(static_cast<std::int32_t>(degree), visits, static_cast<double>(visits), 0);
      if (pieces.back().regular) return finish(assemble(std::move(pieces), nodes, max_hops, true), degree);
    }
  }
  const auto likely = static_cast<std::int64_t>(std::ceil(mean + 6 * std::sqrt(variance)));
  return finish(
      assemble(sample_all(-1, std::min(likely, most_visits), mean, variance), nodes, max_hops, false),
      graph.out_degree);
}

namespace {

DepositView deposits_on_device(const at::Tensor& deposit_ptr, const at::Tensor& hop, const at::Tensor& load) {
  return {deposit_ptr.size(0) - 1, deposit_ptr.const_data_ptr<std::int64_t>(),
          hop.const_data_ptr<std::int16_t>(), load.const_data_ptr<float>()};
}

}  // namespace

WalkFeatures one_hot_features_cuda(std::int64_t num_nodes, c10::Device device) {
  const at::TensorOptions there(device);
  WalkFeatures features;
  features.row_ptr = at::empty({num_nodes + 1}, there.dtype(at::kLong));
  features.col = at::empty({num_nodes}, there.dtype(at::kInt));
  features.deposit_ptr = features.row_ptr;
  features.hop = at::empty({num_nodes}, there.dtype(at::kShort));
  features.load = at::empty({num_nodes}, there.dtype(at::kFloat));
  features.num_columns = num_nodes;
  features.max_hops = 0;
  features.exact = true;
  features.longest_row = 1;
  const CudaLaunch launch(features.row_ptr);
  check_cuda(write_one_hot(num_nodes, features.row_ptr.data_ptr<std::int64_t>(),
                           features.col.data_ptr<std::int32_t>(), features.hop.data_ptr<std::int16_t>(),
                           features.load.data_ptr<float>(), launch.stream),
             "one-hot features");
  return features;
}

at::Tensor modulate_cuda(const at::Tensor& f, const at::Tensor& deposit_ptr, const at::Tensor& hop,
                         const at::Tensor& load) {
  const CudaLaunch launch(deposit_ptr);
  const DepositView deposits = deposits_on_device(deposit_ptr, hop, load);
  at::Tensor values = at::empty({f.size(0), deposits.nnz}, f.options());
  AT_DISPATCH_FLOATING_TYPES(f.scalar_type(), "modulate", [&] {
    check_cuda(cuda::modulate(deposits, f.const_data_ptr<scalar_t>(), f.size(0), f.size(1),
                              values.data_ptr<scalar_t>(), launch.stream),
               "modulate");
  });
  return values;
}

at::Tensor modulate_backward_cuda(const at::Tensor& grad_values, std::int64_t terms,
                                  const at::Tensor& deposit_ptr, const at::Tensor& hop,
                                  const at::Tensor& load) {
  const CudaLaunch launch(deposit_ptr);
  const DepositView deposits = deposits_on_device(deposit_ptr, hop, load);
  const std::int64_t heads = grad_values.size(0);
  at::Tensor grad = at::empty({heads, terms}, grad_values.options());
  const at::Tensor partial = at::empty({heads, terms, cuda::modulate_backward_runs(deposits.nnz)},
                                       grad_values.options().dtype(at::kDouble));
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "modulate_backward", [&] {
    check_cuda(cuda::modulate_backward(deposits, grad_values.const_data_ptr<scalar_t>(), heads, terms,
                                       grad.data_ptr<scalar_t>(), partial.data_ptr<double>(), launch.stream),
               "modulate_backward");
  });
  return grad;
}

}  // namespace topomask
