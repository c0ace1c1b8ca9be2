// Graphs from formulas and random generators. All edges have weight 1; all graphs but kNN are undirected.
// Random graphs depend only on their seed, not on the machine or the number of threads.
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
  // false: directed, k out-edges a node; true: undirected, i ~ j if either is near the other.
  bool symmetric = false;
  at::Tensor ptr = {};  // [graphs+1] int64: a packed batch, as in neighbours.h
  at::Tensor box = {};  // [D]: a periodic box, as in neighbours.h
};
// Row i holds the k nearest neighbours of node i as neighbours.h defines them, by ascending index; fewer
// where a graph has no more than k nodes. The graph is made where the points are. On a GPU nothing waits for
// the device, except that a symmetric graph and one with `ptr` on the device wait once, for the number of
// edges; a point that is not finite goes unnoticed there: it is nobody's neighbour and has arbitrary ones.
Graph knn_graph(const at::Tensor& points, const KnnOptions& options);
// The neighbours themselves: [N, min(k, N-1)] int32, nearest first.
at::Tensor knn_indices(const at::Tensor& points, std::int64_t k);

struct RadiusOptions {
  double r = 1;
  std::int64_t max_neighbours = 0;  // 0: all, and the graph is undirected; else the nearest ones, directed
  at::Tensor ptr = {}, box = {};    // as above
};
// Row i holds all nodes within r of node i, itself excluded, by ascending index. On a GPU this waits once.
Graph radius_graph(const at::Tensor& points, const RadiusOptions& options);

// A point cloud to try things on: points spread evenly over a torus, in Morton order. [N, 3] float.
at::Tensor torus_points(std::int64_t num_points, std::uint64_t seed = 0);

}  // namespace topomask
