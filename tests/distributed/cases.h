// The graphs and numbers of ranks that everything distributed is tested on.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>

#include <string>
#include <vector>

#include "topomask/distributed.h"
#include "topomask/graph_builders.h"

namespace topomask::testing {

inline const std::vector<int> kRankCounts = {1, 2, 3, 4, 8};

struct GraphCase {
  std::string name;
  Graph graph;
};

inline Graph from_pairs(std::int64_t nodes, const std::vector<std::pair<int, int>>& pairs, bool directed) {
  EdgeList edges;
  edges.num_nodes = nodes;
  for (const auto& [from, to] : pairs) {
    edges.source.push_back(from);
    edges.target.push_back(to);
    edges.weight.push_back(0.5f + 0.25f * static_cast<float>((from * 7 + to * 3) % 5));
  }
  GraphPolicy policy;
  policy.direction = directed ? Direction::directed : Direction::undirected;
  return Graph::from_edges(edges, policy);
}

inline FeatureOptions feature_options(Ensembles ensembles) {
  FeatureOptions options;
  options.ensembles = ensembles;
  options.walks.num_walks = 4;
  options.walks.max_hops = 3;
  options.walks.p_halt = 0.3;
  options.walks.seed = 5;
  return options;
}

inline std::vector<GraphCase> graph_cases() {
  std::vector<GraphCase> cases;
  cases.push_back({"grid", grid_graph({9, 7})});
  KnnOptions knn;
  knn.k = 4;
  knn.symmetric = true;
  cases.push_back({"cloud", knn_graph(torus_points(80, 3), knn)});
  std::vector<std::pair<int, int>> hub, arrows, lonely;
  for (int i = 1; i < 50; ++i) hub.emplace_back(0, i);
  for (int i = 1; i < 49; i += 3) hub.emplace_back(i, i + 1);
  for (int i = 0; i < 60; ++i) {
    arrows.emplace_back(i, (i * 7 + 1) % 60);
    if (i % 5 != 0) arrows.emplace_back(i, (i * 3 + 5) % 60);  // every fifth has one way out
  }
  for (int i = 0; i < 30; i += 2) lonely.emplace_back(i, (i + 4) % 30);  // odd nodes have no edge
  cases.push_back({"hub", from_pairs(50, hub, false)});
  cases.push_back({"directed", from_pairs(60, arrows, true)});
  cases.push_back({"isolated", from_pairs(32, lonely, false)});
  cases.push_back({"few", path_graph(3)});  // fewer nodes than ranks
  return cases;
}

inline Partition parts_of(const Graph& graph, int parts) {
  PartitionOptions options;
  options.parts = parts;
  options.method = PartitionMethod::metis;
  return partition_graph(graph, options);
}

// `each(graph, ranks)` on every graph and number of ranks.
template <class Each>
void on_all(const Each& each) {
  for (const GraphCase& one : graph_cases()) {
    for (const int size : kRankCounts) {
      SCOPED_TRACE(one.name + " on " + std::to_string(size) + " ranks");
      const Partition partition = parts_of(one.graph, size);
      Ranks::run_threads(size, [&](const RanksPtr& ranks) { each(one, partition, ranks); });
    }
  }
}

}  // namespace topomask::testing
