#include "topomask/graph_builders.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "graph/cpu/generators.h"
#include "graph/cpu/knn.h"
#include "graph/cpu/limits.h"
#include "graph/cpu/transform.h"
#include "graph/gpu.h"
#include "graph/tensors.h"

namespace topomask {

Graph path_graph(std::int64_t num_nodes) {
  check_num_nodes("path_graph", num_nodes);
  return grid_graph({num_nodes});
}

Graph cycle_graph(std::int64_t num_nodes) {
  check_num_nodes("cycle_graph", num_nodes);
  return grid_graph({num_nodes}, {.wrap = true});
}

Graph grid_graph(const std::vector<std::int64_t>& extent, const GridOptions& options) {
  return Graph::from_csr(grid_rows(extent, options.diagonals, options.wrap), false);
}

Graph hypercube_graph(int dimension) {
  return Graph::from_csr(hypercube_rows(dimension), false);
}

Graph complete_tree(int depth, int branching) {
  return Graph::from_csr(tree_rows(depth, branching), false);
}

Graph erdos_renyi(std::int64_t num_nodes, double probability, std::uint64_t seed) {
  return Graph::from_csr(erdos_renyi_rows(num_nodes, probability, seed), false);
}

Graph barabasi_albert(std::int64_t num_nodes, std::int64_t edges_per_node, std::uint64_t seed) {
  return Graph::from_csr(barabasi_albert_rows(num_nodes, edges_per_node, seed), false);
}

Graph random_regular(std::int64_t num_nodes, std::int64_t degree, std::uint64_t seed) {
  return Graph::from_csr(random_regular_rows(num_nodes, degree, seed), false);
}

Graph karate_club() {
  return Graph::from_csr(karate_rows(), false);
}

at::Tensor torus_points(std::int64_t num_points, std::uint64_t seed) {
  check_num_nodes("torus_points", num_points);
  constexpr double kRing = 1, kTube = 0.4, kTurn = 2 * std::numbers::pi;
  constexpr std::uint32_t kPurpose = 0x746f7275;  // of this generator's random numbers alone
  RandomStream stream(seed, kPurpose);
  at::Tensor points = at::empty({num_points, 3}, at::kFloat);
  auto* out = points.data_ptr<float>();
  for (std::int64_t i = 0; i < num_points; ++i) {
    const double around = kTurn * stream.next_double();
    // The outer side has more area: angles of the tube are accepted in proportion to it.
    double tube = kTurn * stream.next_double();
    while (stream.next_double() * (kRing + kTube) > kRing + kTube * std::cos(tube))
      tube = kTurn * stream.next_double();
    const double radius = kRing + kTube * std::cos(tube);
    *out++ = static_cast<float>(radius * std::cos(around));
    *out++ = static_cast<float>(radius * std::sin(around));
    *out++ = static_cast<float>(kTube * std::sin(tube));
  }
  return points.index_select(0, morton_order(points));
}

namespace {

void check_knn(const at::Tensor& points, std::int64_t k) {
  check_points(points, "knn_graph");
  check(points.size(1) >= 1, "knn_graph: expected points [N, D] with D of at least 1, got D = 0");
  check(k >= 1 && k < points.size(0),
        "knn_graph: expected k of at least 1 and less than the number of points {}, got {}", points.size(0),
        k);
}

}  // namespace

at::Tensor knn_indices(const at::Tensor& points, std::int64_t k) {
  check_knn(points, k);
  if (knn_runs_on_cuda(points, k)) return knn_indices_cuda(points, k);
  const at::Tensor ready = points_on_cpu(points, "knn_graph");
  at::Tensor indices = at::empty({ready.size(0), k}, at::kInt);
  nearest_neighbours({ready.const_data_ptr<float>(), ready.size(0), ready.size(1)}, k,
                     indices.mutable_data_ptr<std::int32_t>());
  return indices.to(points.device());
}

Graph knn_graph(const at::Tensor& points, const KnnOptions& options) {
  check_knn(points, options.k);
  if (knn_runs_on_cuda(points, options.k)) return knn_graph_cuda(points, options);
  const at::Tensor indices = knn_indices(points, options.k).cpu();
  const std::int64_t num_nodes = indices.size(0), k = options.k;
  const std::int32_t* nearest = indices.const_data_ptr<std::int32_t>();
  CsrArrays rows;
  rows.row_ptr.resize(static_cast<std::size_t>(num_nodes) + 1);
  for (std::int64_t i = 0; i <= num_nodes; ++i) rows.row_ptr[i] = i * k;
  rows.col.assign(nearest, nearest + num_nodes * k);
  rows.weight.assign(rows.col.size(), 1.0f);
  parallel_for(num_nodes, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::sort(rows.col.begin() + i * k, rows.col.begin() + (i + 1) * k);
  });
  if (options.symmetric) return Graph::from_csr(symmetric_pattern(rows.view()), false).to(points.device());
  Graph graph = Graph::from_csr(std::move(rows), true).to(points.device());
  graph.out_degree = k;
  return graph;
}

}  // namespace topomask
