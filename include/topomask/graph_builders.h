// Graphs from a formula or from a generator. All edges have weight 1; all but kNN are undirected.
// The random ones depend on their seed alone, not on the machine or the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "topomask/graph.h"

namespace topomask {

// A cycle of 2 is one edge and a cycle of 1 has none.
Graph path_graph(std::int64_t num_nodes);
Graph cycle_graph(std::int64_t num_nodes);

struct GridOptions {
  bool diagonals = false;  // also connect cells that touch at a corner (8 or 26 neighbours)
  bool wrap = false;       // a torus
};
// `extent`: 1 to 3 sizes; node = (x0 * extent[1] + x1) * extent[2] + x2, the last coordinate varying fastest.
Graph grid_graph(const std::vector<std::int64_t>& extent, const GridOptions& options = {});

Graph hypercube_graph(int dimension);
Graph complete_tree(int depth, int branching = 2);  // depth 0 is a single node
Graph erdos_renyi(std::int64_t num_nodes, double probability, std::uint64_t seed = 0);
// Starts from a star on nodes 0 (the hub) to `edges_per_node`: m (N - m) edges in all.
Graph barabasi_albert(std::int64_t num_nodes, std::int64_t edges_per_node, std::uint64_t seed = 0);
// Simple, by the configuration model with switchings; N * degree must be even.
Graph random_regular(std::int64_t num_nodes, std::int64_t degree, std::uint64_t seed = 0);
Graph karate_club();  // Zachary 1977: 34 nodes, 78 edges

struct KnnOptions {
  std::int64_t k = 3;
  // false: directed, exactly k out-edges a node; true: undirected, i ~ j if either is near the other.
  bool symmetric = false;
};
// Exact k nearest neighbours by Euclidean distance, the node itself excluded, ties to the smaller index.
// `points`: [N, D] float (float64 is rounded to float32), any D >= 1, finite; D <= 3 has its own fast path.
// Distances are compared in double. The graph is made where the points are; on a GPU (D <= 3, k <= 64; else
// on the CPU) nothing waits for the device, so that coordinates which are not finite go unnoticed: such
// points are nobody's neighbours and have arbitrary ones.
Graph knn_graph(const at::Tensor& points, const KnnOptions& options);
// The neighbours themselves: [N, k] int32, nearest first.
at::Tensor knn_indices(const at::Tensor& points, std::int64_t k);

// A point cloud to try things on: points spread evenly over a torus, in Morton order. [N, 3] float.
at::Tensor torus_points(std::int64_t num_points, std::uint64_t seed = 0);

}  // namespace topomask
