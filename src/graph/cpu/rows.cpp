#include "graph/cpu/rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "graph/cpu/components.h"
#include "graph/cpu/limits.h"
#include "graph/cpu/transform.h"

namespace topomask {
namespace {

void check_edges(const EdgeList& edges) {
  check_num_nodes("Graph::from_edges", edges.num_nodes);
  check(edges.source.size() == edges.target.size(),
        "Graph::from_edges: expected as many targets as sources, got {} sources and {} targets",
        edges.source.size(), edges.target.size());
  check(edges.weight.empty() || edges.weight.size() == edges.source.size(),
        "Graph::from_edges: expected one weight per edge ({}) or none, got {}", edges.source.size(),
        edges.weight.size());
  check(edges.names.empty() || static_cast<std::int64_t>(edges.names.size()) == edges.num_nodes,
        "Graph::from_edges: expected one name per node ({}) or none, got {}", edges.num_nodes,
        edges.names.size());
  check_num_entries("Graph::from_edges", 2.0 * static_cast<double>(edges.source.size()));
  for (std::size_t e = 0; e < edges.source.size(); ++e) {
    const std::int32_t a = edges.source[e], b = edges.target[e];
    check(a >= 0 && a < edges.num_nodes && b >= 0 && b < edges.num_nodes,
          "Graph::from_edges: edge {} joins {} and {}, but nodes are numbered 0 to {}", e, a, b,
          edges.num_nodes - 1);
  }
  for (std::size_t e = 0; e < edges.weight.size(); ++e) {
    check(std::isfinite(edges.weight[e]),
          "Graph::from_edges: the weight of edge {} is {}, expected a finite number", e, edges.weight[e]);
  }
}

// Calls visit(row, column, weight) for every entry, parallel ones in the order of the list.
template <class Visit>
void for_each_entry(const EdgeList& edges, bool directed, SelfLoops self_loops, const Visit& visit) {
  for (std::size_t e = 0; e < edges.source.size(); ++e) {
    const std::int32_t a = edges.source[e], b = edges.target[e];
    if (a == b && self_loops == SelfLoops::drop) continue;
    const float weight = edges.weight.empty() ? 1.0f : edges.weight[e];
    visit(a, b, weight);
    if (!directed && a != b) visit(b, a, weight);
  }
}

// Columns as rows: a stable counting sort by column. Transposing it once more sorts the columns of each row,
// and parallel entries keep the order of the list in both passes.
CsrArrays entries_by_column(const EdgeList& edges, bool directed, SelfLoops self_loops) {
  CsrArrays columns;
  columns.row_ptr.assign(static_cast<std::size_t>(edges.num_nodes) + 1, 0);
  for_each_entry(edges, directed, self_loops,
                 [&](std::int32_t, std::int32_t column, float) { ++columns.row_ptr[column + 1]; });
  std::partial_sum(columns.row_ptr.begin(), columns.row_ptr.end(), columns.row_ptr.begin());
  columns.col.resize(static_cast<std::size_t>(columns.row_ptr.back()));
  columns.weight.resize(columns.col.size());
  std::vector<std::int64_t> next(columns.row_ptr.begin(), columns.row_ptr.end() - 1);
  for_each_entry(edges, directed, self_loops, [&](std::int32_t row, std::int32_t column, float weight) {
    const std::int64_t slot = next[column]++;
    columns.col[slot] = row;
    columns.weight[slot] = weight;
  });
  return columns;
}

std::vector<std::int32_t> select_nodes(const CsrView& rows, const GraphPolicy& policy) {
  std::vector<bool> keep(static_cast<std::size_t>(rows.num_nodes), true);
  if (policy.components == Components::drop && rows.num_nodes > 0) {
    const ComponentLabels components = weak_components(rows);
    const auto largest = std::max_element(components.size.begin(), components.size.end());
    const auto chosen = static_cast<std::int32_t>(largest - components.size.begin());
    for (std::int64_t i = 0; i < rows.num_nodes; ++i) keep[i] = components.label[i] == chosen;
  }
  if (policy.isolated == Isolated::drop) {
    std::vector<bool> touched(keep.size(), false);
    for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
      for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e)
        touched[i] = touched[rows.col[e]] = true;
    }
    for (std::size_t i = 0; i < keep.size(); ++i) keep[i] = keep[i] && touched[i];
  }
  std::vector<std::int32_t> kept;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) kept.push_back(static_cast<std::int32_t>(i));
  }
  return kept;
}

}  // namespace

void merge_parallel_entries(CsrArrays& rows, Duplicates duplicates, std::int64_t first_row) {
  std::int64_t out = 0;
  for (std::int64_t i = 0; i < rows.num_nodes(); ++i) {
    const std::int64_t end = rows.row_ptr[i + 1];
    std::int64_t entry = rows.row_ptr[i];
    rows.row_ptr[i] = out;
    while (entry < end) {
      const std::int32_t column = rows.col[entry];
      const float first = rows.weight[entry];
      double sum = 0;
      for (; entry < end && rows.col[entry] == column; ++entry) sum += rows.weight[entry];
      rows.col[out] = column;
      rows.weight[out] = duplicates == Duplicates::sum ? static_cast<float>(sum) : first;
      check(
          std::isfinite(rows.weight[out]),
          "Graph::from_edges: the weights of the parallel edges from {} to {} sum to {:g}, which is no float",
          first_row + i, column, sum);
      ++out;
    }
  }
  rows.row_ptr.back() = out;
  rows.col.resize(static_cast<std::size_t>(out));
  rows.weight.resize(static_cast<std::size_t>(out));
}

BuiltRows build_rows(const EdgeList& edges, const GraphPolicy& policy) {
  check_edges(edges);
  BuiltRows built;
  built.directed =
      policy.direction == Direction::as_read ? edges.directed : policy.direction == Direction::directed;
  built.rows = transpose(entries_by_column(edges, built.directed, policy.self_loops).view());
  if (policy.duplicates != Duplicates::keep) merge_parallel_entries(built.rows, policy.duplicates);
  if (policy.components == Components::drop || policy.isolated == Isolated::drop) {
    std::vector<std::int32_t> kept = select_nodes(built.rows.view(), policy);
    if (static_cast<std::int64_t>(kept.size()) < edges.num_nodes) {
      built.rows = subgraph(built.rows.view(), kept);
      built.kept = std::move(kept);
      built.all_kept = false;
    }
  }
  return built;
}

EdgeList edges_of(const CsrView& graph, bool directed) {
  EdgeList edges;
  edges.num_nodes = graph.num_nodes;
  edges.directed = directed;
  for (std::int64_t i = 0; i < graph.num_nodes; ++i) {
    for (std::int64_t e = graph.row_ptr[i]; e < graph.row_ptr[i + 1]; ++e) {
      if (!directed && graph.col[e] < i) continue;
      edges.source.push_back(static_cast<std::int32_t>(i));
      edges.target.push_back(graph.col[e]);
      edges.weight.push_back(graph.weight[e]);
    }
  }
  return edges;
}

}  // namespace topomask
