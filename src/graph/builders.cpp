#include "topomask/graph_builders.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/random.h"
#include "graph/cpu/generators.h"
#include "graph/cpu/limits.h"
#include "graph/cpu/transform.h"
#include "graph/neighbour_task.h"
#include "graph/tensors.h"
#ifdef TOPOMASK_CUDA
#include "graph/graph_cuda.h"
#endif

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

// Rows of neighbours as a graph, all weights 1.
Graph graph_of(const NeighbourRows& rows, bool directed) {
  return {rows.row_ptr, rows.col, at::ones({rows.col.size(0)}, rows.col.options().dtype(at::kFloat)),
          directed};
}

std::int64_t others_of(const NeighbourTask& task) {
  return std::max<std::int64_t>(task.num_points() - 1, 0);
}

}  // namespace

at::Tensor knn_indices(const at::Tensor& points, std::int64_t k) {
  NeighbourTask task = neighbour_task(points, {}, "knn_indices");
  want_nearest(task, std::min(k, others_of(task)), "knn_indices");
  task.only_index = true;
  return nearest_of(std::move(task), "knn_indices").index;
}

Graph knn_graph(const at::Tensor& points, const KnnOptions& options) {
  NeighbourTask task = neighbour_task(points, {.ptr = options.ptr, .box = options.box}, "knn_graph");
  want_nearest(task, std::min(options.k, others_of(task)), "knn_graph");
#ifdef TOPOMASK_CUDA
  if (neighbours_run_on_cuda(task)) return knn_graph_cuda(task, options.symmetric);
#endif
  const Graph graph = graph_of(rows_of(nearest_of(std::move(task), "knn_graph")), true);
  if (!options.symmetric) return graph;
  return Graph::from_csr(symmetric_pattern(graph.to(at::kCPU).view()), false).to(points.device());
}

Graph radius_graph(const at::Tensor& points, const RadiusOptions& options) {
  check(options.max_neighbours >= 0, "radius_graph: expected max_neighbours of at least 0 (0: all), got {}",
        options.max_neighbours);
  const NeighbourOptions search{.ptr = options.ptr, .box = options.box};
  if (options.max_neighbours == 0) return graph_of(radius(points, options.r, search), false);
  return graph_of(rows_of(radius(points, options.r, options.max_neighbours, search)), true);
}

}  // namespace topomask
