#include "walks/cpu/walk_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/parallel.h"

namespace topomask {

std::int64_t most_deposits(const WalkPlan& plan, std::int64_t out_degree, std::int64_t num_nodes) {
  const std::int64_t most = std::min(plan.num_walks, num_nodes);
  std::int64_t reached = 1, total = 1;
  for (int hop = 0; hop < plan.max_hops; ++hop) {
    reached = out_degree < 0 ? most : std::min(reached * out_degree, most);
    total += reached;
  }
  return total;
}

namespace {

constexpr std::int64_t kNodesPerTask = 8192;
constexpr std::int64_t kMaxSlots = 16;

// The least common multiple of all degrees, or 0 if it is too large to be worth a table.
int common_slots(const CsrView& graph) {
  std::int64_t slots = 1;
  for (std::int64_t node = 0; node < graph.num_nodes; ++node) {
    const std::int64_t degree = graph.degree(node);
    if (degree == 0 || slots % degree == 0) continue;
    slots = std::lcm(slots, degree);
    if (slots > kMaxSlots) return 0;
  }
  const bool index_fits = graph.num_nodes * slots <= std::numeric_limits<std::int32_t>::max();
  return index_fits ? static_cast<int>(slots) : 0;
}

// w_uv / p_step(u -> v) of one edge (design: uniform steps have p = 1/degree, weighted ones |w| / sum |w|).
float step_factor(const CsrView& graph, const WalkPlan& plan, std::int64_t node, std::int64_t entry,
                  double row_weight) {
  if (!plan.importance_weights) return 1.0f;
  const double weight = graph.weight[entry];
  if (!plan.weighted_steps) return static_cast<float>(weight * static_cast<double>(graph.degree(node)));
  return static_cast<float>(std::copysign(weight == 0 ? 0.0 : row_weight, weight));
}

double absolute_row_sum(const CsrView& graph, std::int64_t node) {
  double sum = 0;
  for (std::int64_t entry = graph.row_ptr[node]; entry < graph.row_ptr[node + 1]; ++entry) {
    sum += std::abs(static_cast<double>(graph.weight[entry]));
  }
  return sum;
}

void fill_weighted_thresholds(NeighbourTable& table, std::int64_t node, double row_weight) {
  const CsrView& graph = table.graph;
  double cumulative = 0;
  for (std::int64_t entry = graph.row_ptr[node]; entry < graph.row_ptr[node + 1]; ++entry) {
    cumulative += std::abs(static_cast<double>(graph.weight[entry]));
    const double below = row_weight > 0 ? std::floor(cumulative / row_weight * 0x1p32) : 0;
    table.edge_below[entry] = static_cast<std::uint32_t>(std::min(below, 0x1p32 - 1));
  }
}

}  // namespace

std::int64_t NeighbourTable::weighted_choice(std::int64_t node, std::uint32_t word) const {
  const std::uint32_t* first = edge_below.data() + graph.row_ptr[node];
  const std::uint32_t* last =
      edge_below.data() + graph.row_ptr[node + 1] - 1;  // the last edge takes the rest
  return std::upper_bound(first, last, word) - first;
}

NeighbourTable make_neighbour_table(const CsrView& graph, const WalkPlan& plan) {
  NeighbourTable table;
  table.graph = graph;
  const std::int64_t num_nodes = graph.num_nodes;
  const std::int64_t num_entries = graph.num_entries();
  for (std::int64_t node = 0; node < num_nodes && !table.has_sinks; ++node) {
    table.has_sinks = graph.degree(node) == 0;
  }
  const bool rows_only = plan.weighted_steps || plan.repelling;
  table.slots = rows_only ? 0 : common_slots(graph);

  if (table.slots > 0) {
    const std::int64_t slots = table.slots;
    table.slot_node.resize(static_cast<std::size_t>(num_nodes * slots));
    if (plan.need_loads) table.slot_factor.resize(static_cast<std::size_t>(num_nodes * slots));
    parallel_for(num_nodes, kNodesPerTask, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t node = begin; node < end; ++node) {
        std::int32_t* nodes = table.slot_node.data() + node * slots;
        if (graph.degree(node) == 0) std::fill_n(nodes, slots, -1);
        std::int64_t slot = 0;
        const std::int64_t copies = graph.degree(node) == 0 ? 0 : slots / graph.degree(node);
        for (std::int64_t entry = graph.row_ptr[node]; entry < graph.row_ptr[node + 1];
             ++entry, slot += copies) {
          std::fill_n(nodes + slot, copies, graph.col[entry]);
          if (!plan.need_loads) continue;
          std::fill_n(table.slot_factor.data() + node * slots + slot, copies,
                      step_factor(graph, plan, node, entry, 0));
        }
      }
    });
    return table;
  }

  table.edge_factor.resize(static_cast<std::size_t>(num_entries));
  if (plan.weighted_steps) table.edge_below.resize(static_cast<std::size_t>(num_entries));
  const bool index_fits = num_entries <= std::numeric_limits<std::int32_t>::max();
  if (!rows_only && index_fits) {
    table.row_start.resize(static_cast<std::size_t>(num_nodes));
    table.row_degree.resize(static_cast<std::size_t>(num_nodes));
  }
  parallel_for(num_nodes, kNodesPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t node = begin; node < end; ++node) {
      const double row_weight = plan.weighted_steps ? absolute_row_sum(graph, node) : 0;
      for (std::int64_t entry = graph.row_ptr[node]; entry < graph.row_ptr[node + 1]; ++entry) {
        table.edge_factor[entry] = step_factor(graph, plan, node, entry, row_weight);
      }
      if (plan.weighted_steps) fill_weighted_thresholds(table, node, row_weight);
      if (!table.row_start.empty()) {
        table.row_start[node] = static_cast<std::int32_t>(graph.row_ptr[node]);
        table.row_degree[node] = static_cast<std::int32_t>(graph.degree(node));
      }
    }
  });
  return table;
}

}  // namespace topomask
