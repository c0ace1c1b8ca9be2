// Neighbours of points: the k nearest, or all within a radius. The paper's point clouds become
// graphs this way (Sec. 4, App. C.3).
//
// Results are exact, and the same on CPU and GPU bit for bit. The squared distance of a query q and a point p
// is
//
//   d2 = (q_0 - p_0)^2 + (q_1 - p_1)^2 + ...      from left to right, every operation in float64,
//
// of the given coordinates: float64 points are not rounded; float16, bfloat16 and float32 points are
// converted, which is exact. In a periodic box q_a - p_a is replaced by its nearest image, remainder(q_a
// - p_a, box_a). Neighbours are ordered by (d2, index), so that ties go to the smaller index. Nothing here is
// differentiable; compute distances from `index` where gradients are wanted.
//
// The work is done where the points are. On a GPU nothing waits for the device unless noted below. What could
// only be checked by waiting is not checked there: coordinates that are not finite, and the contents of
// `ptr`, `query_ptr` and `box` on the device. A point that is not finite has no neighbours and is the
// neighbour of none. (On a CPU all of these are errors.)
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstdint>
#include <optional>

namespace topomask {

struct NeighbourOptions {
  // [Q, D] floating point, on the device of the points. Undefined: the points themselves.
  at::Tensor queries = {};
  // [graphs+1] int64, from 0 to N, non-decreasing: points ptr[g] .. ptr[g+1]-1 are graph g, and neighbours
  // are sought within a graph only. On the CPU or on the device of the points. Undefined: one graph.
  at::Tensor ptr = {};
  at::Tensor query_ptr = {};  // [graphs+1] int64: the same for `queries`; wanted where both are given
  // [D] real, finite and at least 0: the lengths of a periodic box; 0: not periodic along this axis. Points
  // may lie anywhere, inside the box or not. On the CPU or on the device of the points.
  at::Tensor box = {};
  // Whether a point is a neighbour of itself. Unset: no. Says nothing about `queries`, which are never taken
  // for points.
  std::optional<bool> include_self = {};
};

// A row a query, all of one length.
struct Neighbours {
  at::Tensor index;      // [Q, k] int32, nearest first; -1 where there are fewer than k
  at::Tensor distance2;  // [Q, k] squared distances, float64 for float64 points, else float32; infinity at -1
  at::Tensor count;      // [Q] int32: how many of a row are neighbours
  bool full = false;     // known beforehand to have k neighbours in every row (of finite points)
};

// Compressed rows.
struct NeighbourRows {
  at::Tensor row_ptr;    // [Q+1] int64
  at::Tensor col;        // [E] int32: point, ascending within a row
  at::Tensor distance2;  // [E] as above
};

// The k nearest points of every query. `points`: [N, D] floating point, N < 2^31, any D (0: all points are
// equal); k >= 0, and may exceed N.
// On a GPU up to kMaxGpuNeighbours of up to kMaxGpuDimension dimensions; beyond that the CPU does it and the
// device waits.
Neighbours knn(const at::Tensor& points, std::int64_t k, const NeighbourOptions& options = {});

// All points with d2 <= r * r (in float64), at most the `max_neighbours` nearest of them. r >= 0, may be
// infinite.
Neighbours radius_lists(const at::Tensor& points, double r, std::int64_t max_neighbours,
                        const NeighbourOptions& options = {});
template <std::integral Integer>  // so that radius(points, r, {}) is the other one
Neighbours radius(const at::Tensor& points, double r, Integer max_neighbours,
                  const NeighbourOptions& options = {}) {
  return radius_lists(points, r, static_cast<std::int64_t>(max_neighbours), options);
}
// All of them. On a GPU this waits once, for their number.
NeighbourRows radius(const at::Tensor& points, double r, const NeighbourOptions& options = {});

constexpr std::int64_t kMaxGpuNeighbours = 256;
constexpr std::int64_t kMaxGpuDimension = 128;

// Without the padding. On a GPU this waits once, unless `full`.
NeighbourRows rows_of(const Neighbours& neighbours);

// [2, E] int64 as PyTorch Geometric has it (flow source_to_target): edge_index[0] the neighbour,
// edge_index[1] the query, in ascending order of queries and nearest first. On a GPU the first form waits
// once, unless `full`.
at::Tensor edge_index_of(const Neighbours& neighbours);
at::Tensor edge_index_of(const NeighbourRows& rows);

// [num_graphs+1] int64: `ptr` from the graph of every point, `batch` [N] int64, non-decreasing. Does not
// wait.
at::Tensor ptr_of_batch(const at::Tensor& batch, std::int64_t num_graphs);

}  // namespace topomask
