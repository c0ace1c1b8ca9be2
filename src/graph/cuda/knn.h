// Exact neighbours of points on a GPU: the k nearest, or all within a radius. Framework-free.
//
// Points are sorted along a curve, graph by graph, and boxed: 32 points per leaf, 32 boxes per box of the
// next level. A warp takes a few queries that follow each other on the curve, begins with the leaves around
// them and then walks down from the top, one box per lane, then one candidate per lane; whatever lies farther
// from a query than the farthest neighbour it still wants is left out. Distances are compared in double and
// ties go to the smaller index, as on the CPU; floats only filter (knn_search.cuh), or find the few
// candidates that doubles then decide between (knn_few.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace topomask::cuda {

constexpr int kMaxNeighbours = 256;
constexpr int kMaxDimension = 128;

struct NeighbourArguments {
  const void* coordinate = nullptr;  // [count, dimension]; a point that is not finite is nobody's neighbour
  const void* query = nullptr;       // [num_queries, dimension], or null: the points
  bool is_double = false;            // both; else float
  std::int64_t count = 0, num_queries = 0;  // at least 1
  int dimension = 3;                        // 1 to kMaxDimension
  const std::int64_t* ptr = nullptr;        // [graphs+1], or null: one graph
  const std::int64_t* query_ptr = nullptr;  // [graphs+1], the same as ptr without queries
  std::int64_t graphs = 1;
  const double* box = nullptr;  // [dimension] lengths of a periodic box, 0: not periodic; or null
  double limit = std::numeric_limits<double>::infinity();  // of the squared distance
  bool skip_own = false;                                   // query i does not find point i
  void* workspace = nullptr;                               // neighbour_workspace_bytes
};

// Rows of k neighbours, one per query.
struct NeighbourListsOut {
  int k = 0;               // 1 to kMaxNeighbours
  bool ascending = false;  // neighbours by index, as the columns of a graph; else nearest first
  bool complete = false;   // missing neighbours are any points; else -1. Needs k < count

  std::int32_t* index = nullptr;      // [num_queries, k]
  void* distance2 = nullptr;          // [num_queries, k] float or double as the points are; or null
  std::int32_t* num_found = nullptr;  // [num_queries], or null
  std::int64_t* row_ptr = nullptr;    // [num_queries+1]: 0, k, 2k, ...; or null
  float* weight = nullptr;            // [num_queries, k]: ones, or null
};

// Depends on sizes and types alone; pointers tell only whether something is there.
std::size_t neighbour_workspace_bytes(const NeighbourArguments& arguments);
cudaError_t nearest_neighbours(const NeighbourArguments& arguments, const NeighbourListsOut& out,
                               cudaStream_t stream);

// All points within the limit, in two steps: first how many a query has, then, with the workspace as it was
// left, which. Rows are in no particular order.
cudaError_t count_within(const NeighbourArguments& arguments, std::int32_t* num_found, cudaStream_t stream);
cudaError_t list_within(const NeighbourArguments& arguments, const std::int64_t* row_ptr, std::int32_t* col,
                        void* distance2, cudaStream_t stream);

// Z-order keys of points, the same as on the CPU: 21 bits per axis, in double. `partial`: kBoxBlocks * 6
// floats, scratch.
constexpr int kBoxBlocks = 128;
cudaError_t morton_keys(const float* coordinate, std::int64_t count, int dimension, float* partial,
                        std::uint64_t* key, std::int32_t* index, cudaStream_t stream);

}  // namespace topomask::cuda
