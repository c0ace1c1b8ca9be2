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

#include "core/check.h"
#include "core/cuda/primitives.h"
#include "core/cuda_launch.h"
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
  result.row_ptr = graph.row_ptr.contiguous();
  result.col = graph.col.contiguous();
  result.weight = graph.weight.contiguous();
  DeviceGraph& g = result.graph;
  g.num_nodes = graph.num_nodes();
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

at::Tensor bytes_on(const at::Tensor& like, std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)}, like.options().dtype(at::kByte));
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

struct SampledRows {
  at::Tensor row_ptr, col, deposit_ptr, hop, load;
  bool regular = true;
};

// What the host must know before it can allocate: the sizes and the counters.
struct Totals {
  OffsetPair sizes;
  FeatureStatus status;
};

// Offsets of all rows to `offset` [rows+1, 2], and the totals to the host, in one wait.
Totals scan_and_read(const at::Tensor& counts, const at::Tensor& offset, const at::Tensor& status,
                     cudaStream_t stream) {
  const std::int64_t rows = counts.size(1);
  const std::size_t bytes = ScanCountPairs::workspace_bytes(rows);
  const at::Tensor workspace = bytes_on(counts, bytes);
  const auto* count = counts.const_data_ptr<std::int32_t>();
  auto* pairs = reinterpret_cast<OffsetPair*>(offset.data_ptr<std::int64_t>());
  check_cuda(ScanCountPairs::run(count, count + rows, rows, pairs, workspace.data_ptr(), bytes, stream),
             "walk features");
  const at::Tensor host = at::empty({static_cast<std::int64_t>(sizeof(Totals))},
                                    at::TensorOptions(at::kByte).pinned_memory(true));
  auto* totals = reinterpret_cast<Totals*>(host.data_ptr());
  check_cuda(
      cudaMemcpyAsync(&totals->sizes, pairs + rows, sizeof(OffsetPair), cudaMemcpyDeviceToHost, stream),
      "walk features");
  check_cuda(cudaMemcpyAsync(&totals->status, status.data_ptr(), sizeof(FeatureStatus),
                             cudaMemcpyDeviceToHost, stream),
             "walk features");
  check_cuda(cudaStreamSynchronize(stream), "walk features");
  return *totals;
}

SampledRows sample_rows(const GraphOnDevice& graph, const PlanOnDevice& plan, const WalkPlan& host_plan,
                        std::int64_t first_row, std::int64_t num_rows, std::int32_t out_degree,
                        std::int64_t most_visits, std::int64_t staged, cudaStream_t stream) {
  const at::TensorOptions on = graph.row_ptr.options();
  const at::Tensor counts = at::empty({2, num_rows}, on.dtype(at::kInt)),
                   stage_at = at::empty({num_rows}, on.dtype(at::kLong)),
                   overflow = at::empty({num_rows}, on.dtype(at::kInt)),
                   status = at::zeros({sizeof(FeatureStatus) / sizeof(std::int64_t)}, on.dtype(at::kLong)),
                   offset = at::empty({num_rows + 1, 2}, on.dtype(at::kLong));
  SampledRows rows;
  rows.row_ptr = at::empty({num_rows + 1}, on.dtype(at::kLong));

  FeatureRowsArguments a;
  a.plan = plan.plan;
  a.graph = graph.graph;
  a.first_row = static_cast<std::int32_t>(first_row);
  a.num_rows = static_cast<std::int32_t>(num_rows);
  a.out_degree = out_degree;
  a.walk_bits = bits_for(host_plan.num_walks - 1);
  a.entries = counts.data_ptr<std::int32_t>();
  a.deposits = a.entries + num_rows;
  a.stage_at = stage_at.data_ptr<std::int64_t>();
  a.status = reinterpret_cast<FeatureStatus*>(status.data_ptr<std::int64_t>());
  a.overflow_list = overflow.data_ptr<std::int32_t>();
  at::Tensor scratch;
  const Stage stage(staged, on);
  stage.enter(a);
  choose_team(a, most_visits, graph.row_ptr, scratch);
  check_cuda(sample_feature_rows(a, stream), "walk features");
  Totals totals = scan_and_read(counts, offset, status, stream);
  rows.regular = totals.status.irregular == 0;
  if (!rows.regular) return rows;

  // The few rows that did not fit once more, with room for all their visits.
  const FeatureStatus first = totals.status;
  Stage second(static_cast<std::int64_t>(first.overflow_visits), on);
  at::Tensor second_scratch;
  if (first.overflow_rows > 0) {
    const at::Tensor list = overflow.clone();
    status.zero_();
    a.num_rows = static_cast<std::int32_t>(first.overflow_rows);
    a.row_list = list.const_data_ptr<std::int32_t>();
    a.stage_mark = kSecondStage;
    second.enter(a);
    choose_team(a, static_cast<std::int64_t>(first.overflow_most), graph.row_ptr, second_scratch);
    check_cuda(sample_feature_rows(a, stream), "walk features");
    totals = scan_and_read(counts, offset, status, stream);
  }

  rows.col = at::empty({totals.sizes.first}, on.dtype(at::kInt));
  rows.deposit_ptr = at::empty({totals.sizes.first + 1}, on.dtype(at::kLong));
  rows.hop = at::empty({totals.sizes.second}, on.dtype(at::kShort));
  rows.load = at::empty({totals.sizes.second}, on.dtype(at::kFloat));
  CompactArguments c;
  c.num_rows = static_cast<std::int32_t>(num_rows);
  stage.enter(c, 0);
  second.enter(c, 1);
  c.stage_at = stage_at.const_data_ptr<std::int64_t>();
  c.offset = reinterpret_cast<const OffsetPair*>(offset.const_data_ptr<std::int64_t>());
  c.row_ptr = rows.row_ptr.data_ptr<std::int64_t>();
  c.col = rows.col.data_ptr<std::int32_t>();
  c.deposit_ptr = rows.deposit_ptr.data_ptr<std::int64_t>();
  c.hop = rows.hop.data_ptr<std::int16_t>();
  c.load = rows.load.data_ptr<float>();
  check_cuda(compact_feature_rows(c, stream), "walk features");
  return rows;
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
    std::vector<at::Tensor> parts;
    for (const SampledRows& piece : pieces) parts.push_back(piece.*part);
    return at::cat(parts);
  };
  features.col = joined(&SampledRows::col);
  features.hop = joined(&SampledRows::hop);
  features.load = joined(&SampledRows::load);
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
  features.row_ptr = joined(&SampledRows::row_ptr);
  features.deposit_ptr = joined(&SampledRows::deposit_ptr);
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

WalkFeatures sample_walk_features_cuda(const Graph& graph, const WalkPlan& plan, int max_hops) {
  const int sequence_bits = bits_for(plan.num_walks - 1) + bits_for(max_hops);
  check(sequence_bits <= 32,
        "walks: {} walks of {} hops are more than a GPU can number; sample them on the CPU", plan.num_walks,
        max_hops);
  const CudaLaunch launch(graph.row_ptr);
  const GraphOnDevice on_device = graph_on_device(graph, plan, launch.stream);
  const PlanOnDevice device_plan = plan_on_device(plan, graph.row_ptr.device());
  const std::int64_t nodes = graph.num_nodes();
  const bool may_enumerate = plan.repelling && !plan.weighted_steps && plan.always_max;
  if (nodes == 0) {
    WalkFeatures nothing = one_hot_features(0, graph.device());
    nothing.max_hops = max_hops;
    nothing.exact = may_enumerate;
    return nothing;
  }

  const auto sample_all = [&](std::int32_t out_degree, std::int64_t most_visits, double mean,
                              double variance) {
    const std::int64_t turns = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil(mean * static_cast<double>(nodes) / kMaxStagedDeposits)));
    const std::int64_t rows_a_turn = (nodes + turns - 1) / turns;
    std::vector<SampledRows> pieces;
    for (std::int64_t first = 0; first < nodes; first += rows_a_turn) {
      const std::int64_t rows = std::min(rows_a_turn, nodes - first);
      // Eight standard deviations more than expected; rows beyond that would be done again.
      const auto expected = static_cast<double>(rows);
      const auto staged = static_cast<std::int64_t>(mean * expected + 8 * std::sqrt(variance * expected) + 1);
      pieces.push_back(sample_rows(on_device, device_plan, plan, first, rows, out_degree, most_visits, staged,
                                   launch.stream));
      if (!pieces.back().regular) break;
    }
    return pieces;
  };

  if (may_enumerate) {
    // The number of entries tells the out-degree if it is the same everywhere, and the kernel notices if it
    // is not: the host need not wait for the degrees.
    const std::int64_t guess = graph.num_entries() % nodes == 0 ? graph.num_entries() / nodes : -1;
    for (const bool look : {false, true}) {
      const std::int64_t degree = look ? common_degree(graph) : guess;
      if (!ensemble_enumerates(plan, degree)) continue;
      const std::int64_t visits = walks_up_to(degree, plan.max_hops);
      std::vector<SampledRows> pieces =
          sample_all(static_cast<std::int32_t>(degree), visits, static_cast<double>(visits), 0);
      if (pieces.back().regular) return assemble(std::move(pieces), nodes, max_hops, true);
    }
  }
  const LengthMoments length = length_moments(plan);
  const auto walks = static_cast<double>(plan.num_walks);
  const double mean = 1 + walks * length.mean;
  // Antithetic partners are coupled; twice the variance bounds that.
  const double variance = (plan.antithetic ? 2 : 1) * walks * length.variance;
  const auto likely = static_cast<std::int64_t>(std::ceil(mean + 6 * std::sqrt(variance)));
  const std::int64_t most_visits = std::min(likely, 1 + plan.num_walks * plan.max_hops);
  return assemble(sample_all(-1, most_visits, mean, variance), nodes, max_hops, false);
}

namespace {

DepositView deposits_on_device(const at::Tensor& deposit_ptr, const at::Tensor& hop, const at::Tensor& load) {
  return {deposit_ptr.size(0) - 1, deposit_ptr.const_data_ptr<std::int64_t>(),
          hop.const_data_ptr<std::int16_t>(), load.const_data_ptr<float>()};
}

}  // namespace

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
