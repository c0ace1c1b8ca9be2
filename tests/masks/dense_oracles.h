// Graph quantities by the plainest means, for oracles.
#pragma once

#include <ATen/ATen.h>

#include <limits>
#include <vector>

#include "topomask/graph.h"

namespace topomask::oracle {

// Shortest path lengths by Floyd and Warshall, edges of length 1 or of their weight; infinite where out of
// reach.
inline std::vector<std::vector<double>> path_lengths(const Graph& graph, bool weighted = false) {
  const std::int64_t n = graph.num_nodes();
  const double far = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> length(n, std::vector<double>(n, far));
  const CsrView rows = graph.view();
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e)
      length[i][rows.col[e]] = weighted ? rows.weight[e] : 1.0;
    length[i][i] = 0;
  }
  for (std::int64_t k = 0; k < n; ++k)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) length[i][j] = std::min(length[i][j], length[i][k] + length[k][j]);
  return length;
}

// [heads, N, N] from a function of (head, i, j).
template <class Entry>
at::Tensor matrix_of(std::int64_t heads, std::int64_t n, Entry&& entry) {
  at::Tensor matrix = at::empty({heads, n, n}, at::kDouble);
  double* out = matrix.data_ptr<double>();
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) *out++ = entry(h, i, j);
  return matrix;
}

inline Graph graph_of(std::int64_t n, std::vector<std::int32_t> source, std::vector<std::int32_t> target,
                      bool directed = false) {
  EdgeList edges;
  edges.num_nodes = n;
  edges.source = std::move(source);
  edges.target = std::move(target);
  edges.directed = directed;
  return Graph::from_edges(edges);
}

}  // namespace topomask::oracle
