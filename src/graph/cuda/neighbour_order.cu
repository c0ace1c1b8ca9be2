#include "graph/cuda/neighbour_order.h"

#include <algorithm>
#include <bit>

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"
#include "core/cuda/primitives.h"
#include "graph/cuda/periodic.cuh"

namespace topomask::cuda {

namespace {

constexpr int kOrderThreads = 256;

// The graph that row i is in: the last one that begins at or before it.
__device__ inline std::int64_t graph_of(std::int64_t i, const std::int64_t* ptr, std::int64_t graphs) {
  std::int64_t low = 0, high = graphs;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (ptr[middle] <= i) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// partial[axis][block] holds the lowest coordinates, partial[axes + axis][block] the highest; what is not
// finite is left out.
template <class T>
__global__ void __launch_bounds__(kOrderThreads)
    partial_extents(const T* coordinate, std::int64_t count, int dimension, int axes, double* partial) {
  __shared__ double of_warp[2][kOrderThreads / kWarpSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const double infinity = __longlong_as_double(0x7FF0000000000000);
  for (int a = 0; a < axes; ++a) {
    double low = infinity, high = -infinity;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kOrderThreads + threadIdx.x; i < count;
         i += static_cast<std::int64_t>(gridDim.x) * kOrderThreads) {
      const double x = static_cast<double>(coordinate[i * dimension + a]);
      if (!isfinite(x)) continue;
      low = min(low, x);
      high = max(high, x);
    }
    low = min_lanes(low);
    high = max_lanes(high);
    if (lane == 0) {
      of_warp[0][warp] = low;
      of_warp[1][warp] = high;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
      double best = of_warp[threadIdx.x][0];
      for (int w = 1; w < kOrderThreads / kWarpSize; ++w) {
        best = threadIdx.x == 0 ? min(best, of_warp[0][w]) : max(best, of_warp[1][w]);
      }
      partial[(static_cast<int>(threadIdx.x) * axes + a) * gridDim.x + blockIdx.x] = best;
    }
    __syncthreads();
  }
}

// Keys of points, or of queries in the frame of the points.
template <class T>
__global__ void __launch_bounds__(kOrderThreads)
    order_keys(const T* coordinate, std::int64_t count, int dimension, const double* partial,
               const double* box, const std::int64_t* ptr, std::int64_t graphs, KeyLayout layout, int shift,
               std::uint64_t* key, std::int32_t* index) {
  __shared__ double corner[2 * KeyLayout::kMaxAxes], low[KeyLayout::kMaxAxes], extent[KeyLayout::kMaxAxes];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (int part = warp; part < 2 * layout.axes; part += kOrderThreads / kWarpSize) {
    double best = partial[part * kBoxBlocks + lane];
    for (int b = lane + kWarpSize; b < kBoxBlocks; b += kWarpSize) {
      const double x = partial[part * kBoxBlocks + b];
      best = part < layout.axes ? min(best, x) : max(best, x);
    }
    best = part < layout.axes ? min_lanes(best) : max_lanes(best);
    if (lane == 0) corner[part] = best;
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < layout.axes) {
    const int a = static_cast<int>(threadIdx.x);
    const double length = box == nullptr ? 0 : box[a];
    low[a] = length > 0 ? 0 : corner[a];
    extent[a] = length > 0 ? length : corner[layout.axes + a] - corner[a];
  }
  __syncthreads();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kOrderThreads + threadIdx.x;
  if (i >= count) return;
  double longest = 0;  // one scale for all axes
  for (int a = 0; a < layout.axes; ++a) longest = max(longest, extent[a]);
  const double cells = static_cast<double>(1 << layout.axis_bits), scale = longest > 0 ? cells / longest : 0;
  std::uint64_t code = 0;
  for (int a = 0; a < layout.axes; ++a) {
    const double x = wrapped(static_cast<double>(coordinate[i * dimension + a]), box == nullptr ? 0 : box[a]);
    // The comparisons also take care of what is not a number.
    const double along = (x - low[a]) * scale;
    const std::uint32_t cell = along >= cells ? static_cast<std::uint32_t>(cells) - 1
                               : along > 0    ? static_cast<std::uint32_t>(along)
                                              : 0;
    for (int bit = 0; bit < layout.axis_bits; ++bit) {
      code |= static_cast<std::uint64_t>(cell >> bit & 1) << (bit * layout.axes + a);
    }
  }
  if (layout.graph_bits > 0) {
    code |= static_cast<std::uint64_t>(graph_of(i, ptr, graphs)) << (layout.axes * layout.axis_bits);
  }
  key[i] = code >> shift;
  index[i] = static_cast<std::int32_t>(i);
}

}  // namespace

KeyLayout::KeyLayout(const NeighbourArguments& a) {
  axes = std::min(a.dimension, kMaxAxes);
  if (a.ptr != nullptr && a.graphs > 1) {
    graph_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(a.graphs - 1)));
  }
  axis_bits = std::min(21, (63 - graph_bits) / axes);
  constexpr int kQueryBits = 30;  // enough to bring those queries together that share leaves
  query_shift = std::max(0, axes * axis_bits - kQueryBits);
}

NeighbourOrder::NeighbourOrder(const NeighbourArguments& a, Arena& arena) : layout_(a) {
  const int place_bits = layout_.axes * layout_.axis_bits;
  const auto take_rows = [&](std::int64_t count, int bits) {
    Rows rows;
    rows.key = arena.take<std::uint64_t>(count);
    rows.sorted_key = arena.take<std::uint64_t>(count);
    rows.index = arena.take<std::int32_t>(count);
    rows.sorted_index = arena.take<std::int32_t>(count);
    sort_bytes_ = std::max(sort_bytes_, SortPairs<std::uint64_t>::workspace_bytes(count, bits));
    return rows;
  };
  partial_ = arena.take<double>(2 * layout_.axes * kBoxBlocks);
  point_ = take_rows(a.count, layout_.graph_bits + place_bits);
  if (a.query != nullptr) {
    query_ = take_rows(a.num_queries, layout_.graph_bits + place_bits - layout_.query_shift);
  }
  sort_ = arena.take<char>(static_cast<std::int64_t>(sort_bytes_));
}

template <class T>
cudaError_t NeighbourOrder::sort_rows(const NeighbourArguments& a, bool queries, cudaStream_t stream) const {
  const auto* coordinate = static_cast<const T*>(queries ? a.query : a.coordinate);
  const std::int64_t count = queries ? a.num_queries : a.count;
  const Rows& rows = queries ? query_ : point_;
  const int shift = queries ? layout_.query_shift : 0;
  if (!queries) {
    partial_extents<<<kBoxBlocks, kOrderThreads, 0, stream>>>(coordinate, count, a.dimension, layout_.axes,
                                                              partial_);
  }
  order_keys<<<blocks_for(count, kOrderThreads), kOrderThreads, 0, stream>>>(
      coordinate, count, a.dimension, partial_, a.box, queries ? a.query_ptr : a.ptr, a.graphs, layout_,
      shift, rows.key, rows.index);
  if (const cudaError_t status = cudaGetLastError()) return status;
  const int bits = layout_.graph_bits + layout_.axes * layout_.axis_bits - shift;
  return SortPairs<std::uint64_t>::run(rows.key, rows.index, count, bits, rows.sorted_key, rows.sorted_index,
                                       sort_, sort_bytes_, stream);
}

cudaError_t NeighbourOrder::sort(const NeighbourArguments& a, cudaStream_t stream) const {
  for (const bool queries : {false, true}) {
    if (queries && a.query == nullptr) break;
    const cudaError_t status =
        a.is_double ? sort_rows<double>(a, queries, stream) : sort_rows<float>(a, queries, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

OrderedQueries NeighbourOrder::ordered() const {
  OrderedQueries order;
  order.points = points();
  order.queries = query_.key == nullptr ? order.points : SortedKeys{query_.sorted_key, query_.sorted_index};
  order.place_bits = layout_.axes * layout_.axis_bits;
  order.query_shift = layout_.query_shift;
  return order;
}

}  // namespace topomask::cuda
