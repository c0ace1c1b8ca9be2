// An edge list from a file or a builder, before any policy is applied to it.
//
// This header and everything that makes an EdgeList do not include torch, so the readers can be fuzzed and
// embedded on their own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace topomask {

struct EdgeList {
  std::int64_t num_nodes = 0;
  std::vector<std::int32_t> source;   // [edges], 0 <= source < num_nodes
  std::vector<std::int32_t> target;   // [edges]
  std::vector<float> weight;          // [edges], or empty: all 1
  bool directed = false;              // false: each edge stands for both directions
  std::vector<std::string> names;     // [num_nodes] names in the file, or empty: node i is called i
  std::vector<std::string> warnings;  // a sentence each: what can be read but is hardly meant
};

// What to do with the irregularities of real edge lists.

// Parallel edges: drop keeps the first one. In an undirected graph (a, b) and (b, a) are the same edge.
enum class Duplicates { keep, drop, sum };
// Edges from a node to itself.
enum class SelfLoops { keep, drop };
// Nodes without edges: drop renumbers the others and keeps their order.
enum class Isolated { keep, drop };
// Weakly connected components: drop keeps the largest (the first of equals) and its order.
enum class Components { keep, drop };
enum class Direction { as_read, directed, undirected };

struct GraphPolicy {
  Duplicates duplicates = Duplicates::drop;
  SelfLoops self_loops = SelfLoops::keep;
  Isolated isolated = Isolated::keep;
  Components components = Components::keep;
  Direction direction = Direction::as_read;
};

}  // namespace topomask
