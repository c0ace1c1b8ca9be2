#include "graph/io/matrix_entries.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace topomask {

namespace {

using Entry = std::pair<std::uint64_t, float>;  // (smaller index, larger index) and value

bool halves_agree(const EdgeList& edges) {
  std::vector<Entry> upper, lower;
  for (std::size_t e = 0; e < edges.source.size(); ++e) {
    const auto row = static_cast<std::uint64_t>(edges.source[e]),
               column = static_cast<std::uint64_t>(edges.target[e]);
    const float value = edges.weight.empty() ? 1.0f : edges.weight[e];
    if (row < column) upper.emplace_back(row << 32 | column, value);
    if (row > column) lower.emplace_back(column << 32 | row, value);
  }
  if (upper.size() != lower.size()) return false;
  std::sort(upper.begin(), upper.end());
  std::sort(lower.begin(), lower.end());
  return upper == lower;
}

}  // namespace

bool plausible_node_count(std::int64_t num_nodes, std::int64_t num_edges) {
  constexpr std::int64_t kAlwaysAffordable = std::int64_t{1} << 26;
  constexpr std::int64_t kNodesPerEdge = 64;
  return num_nodes <= kMaxNodes && (num_nodes <= kAlwaysAffordable || num_nodes / kNodesPerEdge <= num_edges);
}

void undirect_if_symmetric(EdgeList& edges) {
  edges.directed = !halves_agree(edges);
  if (edges.directed) return;
  std::size_t kept = 0;
  for (std::size_t e = 0; e < edges.source.size(); ++e) {
    if (edges.source[e] > edges.target[e]) continue;
    edges.source[kept] = edges.source[e];
    edges.target[kept] = edges.target[e];
    if (!edges.weight.empty()) edges.weight[kept] = edges.weight[e];
    ++kept;
  }
  edges.source.resize(kept);
  edges.target.resize(kept);
  if (!edges.weight.empty()) edges.weight.resize(kept);
}

}  // namespace topomask
