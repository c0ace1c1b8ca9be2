#include "topomask/partition.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/interruption.h"
#include "graph/cpu/orders.h"
#include "graph/cpu/partitions.h"
#include "graph/cpu/shard_rows.h"
#include "graph/cpu/transform.h"
#include "graph/part_rows.h"
#include "graph/tensors.h"

namespace topomask {
namespace {

// METIS cuts a graph with few nodes per part into empty ones.
constexpr std::int64_t kLeastNodesPerPart = 4;

std::vector<std::int32_t> vector_of(const at::Tensor& order) {
  const std::int64_t* node = order.const_data_ptr<std::int64_t>();
  return {node, node + order.numel()};
}

// The graph itself where it is undirected, else with every edge in both directions.
struct SymmetricRows {
  explicit SymmetricRows(const Graph& graph) : view(graph.view()) {
    if (!graph.directed) return;
    both = symmetric_pattern(graph.view());
    view = both.view();
  }
  CsrArrays both;
  CsrView view;
};

std::vector<std::int32_t> by_order(const Graph& graph, const PartitionOptions& options) {
  at::Tensor order;
  if (options.points.defined()) {
    check(options.points.dim() == 2 && options.points.size(0) == graph.num_nodes(),
          "partition: expected points [{}, D] like the nodes, got {}", graph.num_nodes(),
          describe(options.points));
    order = morton_order(options.points.to(at::kCPU));
  } else {
    order = reverse_cuthill_mckee(graph);
  }
  return partition_by_order(graph.view(), vector_of(order), options.parts);
}

std::vector<std::int64_t> work_of(const CsrView& rows) {
  std::vector<std::int64_t> work(static_cast<std::size_t>(rows.num_nodes));
  for (std::int64_t i = 0; i < rows.num_nodes; ++i) work[i] = 1 + rows.degree(i);
  return work;
}

std::vector<std::int32_t> by_metis(const Graph& graph, const PartitionOptions& options) {
  const CsrView rows = graph.view();
  if (rows.num_nodes < kLeastNodesPerPart * options.parts) {
    return partition_by_order(rows, vector_of(reverse_cuthill_mckee(graph)), options.parts);
  }
  return partition_by_metis(SymmetricRows(graph).view, work_of(rows), options.parts, options.imbalance,
                            options.seed);
}

// Calls visit(node, neighbours) with the neighbours of either direction, without the node itself.
template <class Visit>
void for_each_neighbourhood(const CsrView& rows, const Visit& visit) {
  std::vector<std::int32_t> near;
  for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
    near.clear();
    for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e) {
      if (rows.col[e] != i && (near.empty() || near.back() != rows.col[e])) near.push_back(rows.col[e]);
    }
    visit(static_cast<std::int32_t>(i), near);
  }
}

std::vector<std::int32_t> by_stream(const Graph& graph, const PartitionOptions& options) {
  const CsrView rows = graph.view();
  const SymmetricRows both(graph);
  std::int64_t neighbours = 0;
  for_each_neighbourhood(both.view, [&](std::int32_t, const std::vector<std::int32_t>& near) {
    neighbours += static_cast<std::int64_t>(near.size());
  });
  FennelPartition parts(work_of(rows), neighbours, options.parts, options.imbalance);
  for (int pass = 0; pass < FennelPartition::kPasses; ++pass) {
    for_each_neighbourhood(both.view, [&](std::int32_t node, const std::vector<std::int32_t>& near) {
      parts.place(node, near);
    });
    poll_interruption();
  }
  return parts.take();
}

// The rows of the parts of a graph in memory.
class MemoryParts : public PartRows {
 public:
  MemoryParts(const CsrView& graph, const ShardNumbering& numbering) : graph_(graph), numbering_(numbering) {}

  std::vector<std::int64_t> row_ptr(std::int64_t part) override {
    std::vector<std::int64_t> begin = {0};
    for (const std::int32_t node : numbering_.nodes(part))
      begin.push_back(begin.back() + graph_.degree(node));
    return begin;
  }
  std::vector<std::int32_t> columns(std::int64_t part) override { return gather(part, graph_.col); }
  std::vector<float> weights(std::int64_t part) override { return gather(part, graph_.weight); }

 private:
  template <class Value>
  std::vector<Value> gather(std::int64_t part, const Value* values) const {
    std::vector<Value> found;
    std::int64_t count = 0;
    for (const std::int32_t node : numbering_.nodes(part)) count += graph_.degree(node);
    found.reserve(static_cast<std::size_t>(count));
    for (const std::int32_t node : numbering_.nodes(part))
      found.insert(found.end(), values + graph_.row_ptr[node], values + graph_.row_ptr[node + 1]);
    return found;
  }

  CsrView graph_;
  const ShardNumbering& numbering_;
};

}  // namespace

void check_partition_options(const PartitionOptions& options) {
  check(options.parts >= 1 && options.parts <= kMostParts, "partition: parts must be from 1 to {}, got {}",
        kMostParts, options.parts);
  check(options.imbalance > 0 && options.imbalance <= 1,
        "partition: imbalance must be above 0 and at most 1, got {}", options.imbalance);
}

Partition partition_graph(const Graph& anywhere, const PartitionOptions& options) {
  check_partition_options(options);
  const Graph graph = anywhere.to(at::kCPU);
  std::vector<std::int32_t> part;
  if (options.parts == 1 || graph.num_nodes() == 0) {
    part.assign(static_cast<std::size_t>(graph.num_nodes()), 0);
  } else if (options.method == PartitionMethod::morton) {
    part = by_order(graph, options);
  } else if (options.method == PartitionMethod::metis) {
    part = by_metis(graph, options);
  } else {
    part = by_stream(graph, options);
  }
  return {options.parts, take_vector(std::move(part)), options.method, options.seed};
}

ShardNumbering numbering_of(const Partition& partition, std::int64_t num_nodes) {
  const at::Tensor& assignment = partition.assignment;
  check(assignment.defined() && assignment.dim() == 1 && assignment.size(0) == num_nodes &&
            is_index(assignment),
        "partition: expected assignment [{}] of int32 or int64, got {}", num_nodes, describe(assignment));
  check(partition.parts >= 1 && partition.parts <= kMostParts,
        "partition: parts must be from 1 to {}, got {}", kMostParts, partition.parts);
  const at::Tensor wide = assignment.to(at::kCPU, at::kLong).contiguous();
  const std::int64_t* part = wide.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    check(part[i] >= 0 && part[i] < partition.parts,
          "partition: node {} is assigned to part {}, expected one from 0 to {}", i, part[i],
          partition.parts - 1);
  }
  return {{part, part + num_nodes}, partition.parts};
}

std::unique_ptr<PartRows> rows_in_memory(const CsrView& graph, const ShardNumbering& numbering) {
  return std::make_unique<MemoryParts>(graph, numbering);
}

SurveyedParts survey_parts(PartRows& rows, ShardNumbering& numbering, bool directed,
                           const std::function<void(std::int64_t)>& progress) {
  SurveyedParts result;
  PartitionSummary& summary = result.summary;
  summary.nodes = numbering.num_nodes();
  summary.directed = directed;
  summary.parts.resize(static_cast<std::size_t>(numbering.parts()));
  std::int64_t cut_entries = 0, loops = 0, largest_work = 0;
  for (std::int64_t p = 0; p < numbering.parts(); ++p) {
    poll_interruption();
    const std::vector<std::int32_t> columns = rows.columns(p);
    const std::vector<std::int64_t> begin = rows.row_ptr(p);
    const std::span<const std::int32_t> nodes = numbering.nodes(p);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (std::int64_t e = begin[i]; e < begin[i + 1]; ++e) {
        cut_entries += numbering.part()[columns[e]] != p;
        loops += columns[e] == nodes[i];
      }
    }
    result.halo.push_back(numbering.halo(p, columns));
    PartSummary& part = summary.parts[static_cast<std::size_t>(p)];
    part.nodes = static_cast<std::int64_t>(nodes.size());
    part.entries = static_cast<std::int64_t>(columns.size());
    part.halo = static_cast<std::int64_t>(result.halo.back().size());
    for (const std::int32_t node : result.halo.back())
      ++summary.parts[static_cast<std::size_t>(numbering.part()[node])].sends;
    summary.entries += part.entries;
    summary.halo_total += part.halo;
    summary.halo_max = std::max(summary.halo_max, part.halo);
    largest_work = std::max(largest_work, part.nodes + part.entries);
    if (progress) progress(p + 1);
  }
  // Each undirected edge but a loop has two entries, and is cut in both or in none.
  summary.edges = directed ? summary.entries : (summary.entries - loops) / 2 + loops;
  summary.cut_edges = directed ? cut_entries : cut_entries / 2;
  if (summary.edges > 0)
    summary.cut_share = static_cast<double>(summary.cut_edges) / static_cast<double>(summary.edges);
  if (summary.nodes > 0) {
    summary.balance = static_cast<double>(largest_work) * static_cast<double>(numbering.parts()) /
                      static_cast<double>(summary.nodes + summary.entries);
  }
  summary.exchange_bytes = summary.halo_total * static_cast<std::int64_t>(sizeof(float));
  return result;
}

PartitionSummary summarise(const Graph& anywhere, const Partition& partition) {
  const Graph graph = anywhere.to(at::kCPU);
  ShardNumbering numbering = numbering_of(partition, graph.num_nodes());
  MemoryParts rows(graph.view(), numbering);
  return survey_parts(rows, numbering, graph.directed).summary;
}

}  // namespace topomask
