// Small graphs with float32 weights, made through Graph::from_dense.
#pragma once

#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "topomask/graph.h"

namespace topomask::test {

inline Graph from_pairs(std::int64_t nodes, const std::vector<std::pair<int, int>>& edges,
                        bool directed = false) {
  at::Tensor adjacency = at::zeros({nodes, nodes}, at::kDouble);
  double* entry = adjacency.data_ptr<double>();
  for (const auto& [i, j] : edges) {
    entry[i * nodes + j] = 1;
    if (!directed) entry[j * nodes + i] = 1;
  }
  return Graph::from_dense(adjacency);
}

inline Graph path(int nodes) {
  std::vector<std::pair<int, int>> edges;
  for (int i = 0; i + 1 < nodes; ++i) edges.push_back({i, i + 1});
  return from_pairs(nodes, edges);
}

inline Graph grid(int height, int width) {
  std::vector<std::pair<int, int>> edges;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      if (x + 1 < width) edges.push_back({y * width + x, y * width + x + 1});
      if (y + 1 < height) edges.push_back({y * width + x, (y + 1) * width + x});
    }
  }
  return from_pairs(height * width, edges);
}

// A cycle with chords in one direction, a leaf and a source: W has no symmetry at all.
inline Graph directed_graph() {
  return from_pairs(7, {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {0, 2}, {1, 4}, {4, 1}, {3, 5}, {6, 0}}, true);
}

}  // namespace topomask::test
