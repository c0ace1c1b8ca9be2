#include "graph/cuda/knn_general.h"

#include <cfloat>

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"
#include "graph/cuda/knn_search.cuh"
#include "graph/cuda/neighbour_order.cuh"
#include "graph/cuda/periodic.cuh"

namespace topomask::cuda {

namespace {

constexpr int kBoxThreads = 256;

// Sorted points and their boxes, one axis after the other. In a periodic box corners are those of wrapped
// coordinates, widened by what wrapping may be off.
template <class T>
struct GeneralPoints {
  T* coordinate = nullptr;        // [axes, stride]; NaN where there is no point, or none that is finite
  std::int32_t* index = nullptr;  // [stride]; -1 where there is no point
  std::int64_t stride = 0;        // count, rounded up to leaves
  int axes = 0;                   // dimension, or 3 if that is less: the others are 0
  int top = 0;                    // the first level of at most 32 boxes
  std::int32_t count[kMaxLevels] = {};
  T* box[kMaxLevels] = {};  // [2, axes, count]: lower and upper corners
};

template <class T>
struct GeneralArguments {
  NeighbourArguments a;
  OrderedQueries ordered;
  GeneralPoints<T> points;
};

template <class T>
struct GeneralWorkspace {
  NeighbourOrder order;
  GeneralPoints<T> points;

  GeneralWorkspace(const NeighbourArguments& a, Arena& arena) : order(a, arena) {
    std::int64_t boxes = (a.count + kLeaf - 1) / kLeaf;
    points.stride = boxes * kLeaf;
    points.axes = a.dimension < 3 ? 3 : a.dimension;
    points.coordinate = arena.take<T>(points.axes * points.stride);
    points.index = arena.take<std::int32_t>(points.stride);
    for (int level = 0; level < kMaxLevels; ++level) {
      points.count[level] = static_cast<std::int32_t>(boxes);
      points.box[level] = arena.take<T>(2 * points.axes * boxes);
      points.top = level;
      if (boxes <= kLeaf) break;
      boxes = (boxes + kLeaf - 1) / kLeaf;
    }
  }
};

__device__ double load_coordinate(const void* array, std::int64_t i, int axis, int dimension,
                                  bool is_double) {
  if (axis >= dimension) return 0;
  if (is_double) return static_cast<const double*>(array)[i * dimension + axis];
  return static_cast<double>(static_cast<const float*>(array)[i * dimension + axis]);
}
__device__ double length_of(const NeighbourArguments& a, int axis) {
  return a.box == nullptr || axis >= a.dimension ? 0 : a.box[axis];
}

// One warp a leaf.
template <class T>
__global__ void __launch_bounds__(kBoxThreads)
    make_general_leaves(const __grid_constant__ NeighbourArguments a, const std::int32_t* sorted_index,
                        const __grid_constant__ GeneralPoints<T> points) {
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kBoxThreads + threadIdx.x;
  if (position >= points.stride) return;  // whole warps
  const std::int64_t leaf = position / kLeaf;
  const std::int32_t index = position < a.count ? sorted_index[position] : -1;
  bool finite = index >= 0;
  for (int axis = 0; finite && axis < a.dimension; ++axis) {
    finite = isfinite(load_coordinate(a.coordinate, index, axis, a.dimension, a.is_double));
  }
  points.index[position] = index;
  const double infinity = infinity_double();
  for (int axis = 0; axis < points.axes; ++axis) {
    const double x = finite ? load_coordinate(a.coordinate, index, axis, a.dimension, a.is_double)
                            : __longlong_as_double(0x7FF8000000000000);
    points.coordinate[axis * points.stride + position] = static_cast<T>(x);
    const double length = length_of(a, axis), error = length > 0 ? kWrapError * (fabs(x) + length) : 0;
    const double place = wrapped(x, length);
    const T low = min_lanes(finite ? static_cast<T>(place - error) : static_cast<T>(infinity));
    const T high = max_lanes(finite ? static_cast<T>(place + error) : static_cast<T>(-infinity));
    if (lane_id() == 0) {
      points.box[0][axis * static_cast<std::int64_t>(points.count[0]) + leaf] = low;
      points.box[0][(points.axes + axis) * static_cast<std::int64_t>(points.count[0]) + leaf] = high;
    }
  }
}

// One warp a box of `level`, from the 32 boxes below it.
template <class T>
__global__ void __launch_bounds__(kBoxThreads)
    make_general_boxes(const __grid_constant__ GeneralPoints<T> points, int level) {
  const std::int64_t child = static_cast<std::int64_t>(blockIdx.x) * kBoxThreads + threadIdx.x;
  const std::int64_t box = child / kLeaf;
  if (box >= points.count[level]) return;  // whole warps
  const std::int64_t boxes = points.count[level], children = points.count[level - 1];
  const T infinity = static_cast<T>(infinity_float());
  for (int part = 0; part < 2 * points.axes; ++part) {
    const bool is_low = part < points.axes;
    T corner = child < children ? points.box[level - 1][part * children + child]
               : is_low         ? infinity
                                : -infinity;
    corner = is_low ? min_lanes(corner) : max_lanes(corner);
    if (lane_id() == 0) points.box[level][part * boxes + box] = corner;
  }
}

// See knn_search.cuh. Of three axes corners and coordinates are kept in registers, of more they are looked
// up.
template <class T, int kAxes, int kQueries_>  // kAxes: 3, or 0 for any number
struct GeneralSpace {
  using Real = T;
  static constexpr int kQueries = kQueries_;
  static constexpr int kKept = kAxes > 0 ? kAxes : 1;
  struct Box {
    int level;
    std::int32_t i;
    T low[kKept], high[kKept];
  };
  struct Point {
    std::int64_t position;
    T at[kKept];
  };

  const GeneralPoints<T>& points;
  const double* length;         // [axes] shared, or null
  const T* query;               // [kQueries, axes] shared
  const T* place;               // [kQueries, axes] shared: wrapped
  const int2* range;            // [kQueries] shared: the positions of its graph
  const std::int32_t* not_own;  // [kQueries] shared: the index it must not find

  __device__ int axes() const { return kAxes > 0 ? kAxes : points.axes; }
  __device__ std::int32_t num_boxes(int level) const { return points.count[level]; }
  __device__ int top() const { return points.top; }
  __device__ T corner(int level, std::int32_t i, int part) const {
    return points.box[level][part * static_cast<std::int64_t>(points.count[level]) + i];
  }
  __device__ Box box(int level, std::int32_t i) const {
    Box result{level, i, {}, {}};
    if constexpr (kAxes > 0) {
#pragma unroll
      for (int a = 0; a < kAxes; ++a) {
        result.low[a] = corner(level, i, a);
        result.high[a] = corner(level, i, kAxes + a);
      }
    }
    return result;
  }
  __device__ T gap_along(int a, T low, T high, int q) const {
    const T x = place[q * axes() + a];
    if (length != nullptr && length[a] > 0) {
      const T whole = static_cast<T>(length[a]);
      const T outside = x < low    ? min(low - x, x + whole - high)
                        : x > high ? min(x - high, low + whole - x)
                                   : T{0};
      return max(outside - static_cast<T>(kWrapError) * (abs(query[q * axes() + a]) + whole), T{0});
    }
    return max(max(low - x, x - high), T{0});
  }
  __device__ T gap(int q, const Box& box) const {
    T sum = 0;
    if constexpr (kAxes > 0) {
#pragma unroll
      for (int a = 0; a < kAxes; ++a) {
        const T along = gap_along(a, box.low[a], box.high[a], q);
        sum += along * along;
      }
    } else {
      for (int a = 0; a < axes(); ++a) {
        const T along = gap_along(a, corner(box.level, box.i, a), corner(box.level, box.i, axes() + a), q);
        sum += along * along;
      }
    }
    return sum;
  }
  __device__ Point point(std::int64_t position) const {
    Point p{position, {}};
    if constexpr (kAxes > 0) {
#pragma unroll
      for (int a = 0; a < kAxes; ++a) p.at[a] = points.coordinate[a * points.stride + position];
    }
    return p;
  }
  __device__ T along(const Point& p, int a) const {
    if constexpr (kAxes > 0) return p.at[a];
    return points.coordinate[a * points.stride + p.position];
  }
  // From left to right, as on the CPU.
  template <class Sum>
  __device__ Sum squared(int q, const Point& p) const {
    Sum sum = 0;
#pragma unroll(kAxes > 0 ? kAxes : 4)
    for (int a = 0; a < axes(); ++a) {
      Sum difference = static_cast<Sum>(query[q * axes() + a]) - static_cast<Sum>(along(p, a));
      if (length != nullptr)
        difference = static_cast<Sum>(nearest_image(static_cast<double>(difference), length[a]));
      sum += difference * difference;
    }
    return sum;
  }
  __device__ std::int32_t index(const Point& p) const {
    return points.index[p.position];
  }
  __device__ std::int32_t own(int q) const {
    return not_own[q];
  }
  __device__ T distance(int q, const Point& p) const {
    return squared<T>(q, p);
  }
  __device__ double exact(int q, const Point& p, T distance) const {
    if constexpr (sizeof(T) == sizeof(double)) return distance;
    return squared<double>(q, p);
  }
  __device__ T reach_of(double distance) const {
    if constexpr (sizeof(T) == sizeof(double)) return distance;
    // Each term and each sum of a float's distance rounds by 2^-24, squares underflow by less than FLT_MIN,
    // and near FLT_MAX it may be infinite.
    const float up = __double2float_ru(distance), terms = static_cast<float>(points.axes);
    return up > 1e38f ? infinity_float() : up * (1 + (terms + 8) * 0x1p-22f) + terms * 4 * FLT_MIN;
  }
  __device__ bool meets(int q, std::int64_t begin, std::int64_t end) const {
    const int2 positions = range[q];
    return begin < positions.y && end > positions.x;
  }
};

constexpr int general_threads(int axes) {
  return axes > 0 ? 128 : 64;
}

// What a warp needs of its queries, in shared memory: arrays of fixed size, and those that grow with the
// dimension.
template <int kWarps, int kQueries>
struct QueryTable {
  int2 range[kWarps][kQueries];
  std::int32_t row[kWarps][kQueries], own[kWarps][kQueries];
};

// Bytes of those that grow: the box, then for each warp coordinates and, in a periodic box, wrapped ones.
template <class T>
std::size_t grown_bytes(const NeighbourArguments& a, int axes, int warps, int queries) {
  const bool periodic = a.box != nullptr;
  return (periodic ? axes * sizeof(double) : 0) +
         static_cast<std::size_t>(warps * queries * axes) * sizeof(T) * (periodic ? 2 : 1);
}

template <class T, int kAxes, int kQueries, int kWarps>
__device__ GeneralSpace<T, kAxes, kQueries> load_queries(const GeneralArguments<T>& g, std::int64_t first,
                                                         double* grown, QueryTable<kWarps, kQueries>& table,
                                                         std::int32_t& seed, unsigned& active) {
  const NeighbourArguments& a = g.a;
  const int axes = kAxes > 0 ? kAxes : g.points.axes, lane = lane_id();
  const int warp = static_cast<int>(threadIdx.x) / kLeaf;
  const bool periodic = a.box != nullptr;
  T* query =
      reinterpret_cast<T*>(grown + (periodic ? axes : 0)) + warp * kQueries * axes * (periodic ? 2 : 1);
  T* place = periodic ? query + kQueries * axes : query;
  // All warps write the same lengths.
  for (int axis = lane; periodic && axis < axes; axis += kLeaf) grown[axis] = length_of(a, axis);
  const auto row_at = [&](std::int64_t i) { return g.ordered.queries.index[min(i, a.num_queries - 1)]; };
  active = 0;
  for (int q = 0; q < kQueries; ++q) {
    const std::int64_t row = row_at(first + q);
    bool finite = true;
    for (int axis = lane; axis < axes; axis += kLeaf) {
      const double x =
          load_coordinate(a.query == nullptr ? a.coordinate : a.query, row, axis, a.dimension, a.is_double);
      finite = finite && isfinite(x);
      query[q * axes + axis] = static_cast<T>(x);
      if (periodic) place[q * axes + axis] = static_cast<T>(wrapped(x, length_of(a, axis)));
    }
    if (__all_sync(~0u, finite) && first + q < a.num_queries) active |= 1u << q;
  }
  const int q = lane % kQueries;
  const std::int64_t i = min(first + q, a.num_queries - 1);
  seed = static_cast<std::int32_t>(position_of(g.ordered, i, a.count) / kLeaf);
  if (lane < kQueries) {
    table.range[warp][q] = graph_positions(g.ordered, i, a);
    table.row[warp][q] = first + q < a.num_queries ? row_at(i) : -1;
    table.own[warp][q] = a.skip_own ? row_at(i) : -2;
  }
  __syncwarp();
  return {g.points, periodic ? grown : nullptr, query, place, table.range[warp], table.own[warp]};
}

template <class T, int kAxes, int kSlots, int kQueries>
__global__ void __launch_bounds__(general_threads(kAxes))
    search_general(const __grid_constant__ GeneralArguments<T> g,
                   const __grid_constant__ NeighbourListsOut out) {
  constexpr int kWarps = general_threads(kAxes) / kLeaf;
  extern __shared__ double grown[];
  __shared__ QueryTable<kWarps, kQueries> table;
  const int warp = static_cast<int>(threadIdx.x) / kLeaf;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kWarps + warp) * kQueries;
  if (first >= g.a.num_queries) return;  // whole warps
  std::int32_t seed;
  unsigned active;
  const auto space = load_queries<T, kAxes, kQueries, kWarps>(g, first, grown, table, seed, active);
  Search<GeneralSpace<T, kAxes, kQueries>, kSlots, false> search(space, out.k, g.a.limit, active);
  search.run(seed);
  search.write(table.row[warp], out, g.a, g.a.is_double);
}

constexpr int kRadiusQueries = 8;

template <class T, int kAxes>
__global__ void __launch_bounds__(general_threads(kAxes))
    search_general_radius(const __grid_constant__ GeneralArguments<T> g, std::int32_t* num_found,
                          const std::int64_t* row_ptr, std::int32_t* col, void* distance2) {
  constexpr int kWarps = general_threads(kAxes) / kLeaf;
  extern __shared__ double grown[];
  __shared__ QueryTable<kWarps, kRadiusQueries> table;
  const int warp = static_cast<int>(threadIdx.x) / kLeaf;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kWarps + warp) * kRadiusQueries;
  if (first >= g.a.num_queries) return;  // whole warps
  std::int32_t seed;
  unsigned active;
  const auto space = load_queries<T, kAxes, kRadiusQueries, kWarps>(g, first, grown, table, seed, active);
  RadiusSearch<GeneralSpace<T, kAxes, kRadiusQueries>> search(space, g.a.limit, active);
  search.run(table.row[warp], row_ptr, col, distance2, g.a.is_double);
  write_counts(search, table.row[warp], num_found);
}

template <class T>
cudaError_t prepare(const NeighbourArguments& a, const GeneralWorkspace<T>& space, cudaStream_t stream) {
  if (const cudaError_t status = space.order.sort(a, stream)) return status;
  make_general_leaves<T><<<blocks_for(space.points.stride, kBoxThreads), kBoxThreads, 0, stream>>>(
      a, space.order.points().index, space.points);
  for (int level = 1; level <= space.points.top; ++level) {
    const std::int64_t threads = static_cast<std::int64_t>(space.points.count[level]) * kLeaf;
    make_general_boxes<T><<<blocks_for(threads, kBoxThreads), kBoxThreads, 0, stream>>>(space.points, level);
  }
  return cudaGetLastError();
}

template <class T, int kAxes, int kSlots, int kQueries>
void launch_search(const GeneralArguments<T>& g, const NeighbourListsOut& out, cudaStream_t stream) {
  constexpr int kThreads = general_threads(kAxes), kWarps = kThreads / kLeaf;
  search_general<T, kAxes, kSlots, kQueries>
      <<<blocks_for(g.a.num_queries, kWarps * kQueries), kThreads,
         grown_bytes<T>(g.a, g.points.axes, kWarps, kQueries), stream>>>(g, out);
}

template <class T, int kAxes>
struct General {
  static std::size_t workspace_bytes(const NeighbourArguments& a) {
    Arena arena(nullptr);
    const GeneralWorkspace<T> space(a, arena);
    return arena.used();
  }

  static cudaError_t nearest(const NeighbourArguments& a, const NeighbourListsOut& out, cudaStream_t stream) {
    Arena arena(a.workspace);
    const GeneralWorkspace<T> space(a, arena);
    if (const cudaError_t status = prepare(a, space, stream)) return status;
    const GeneralArguments<T> g{a, space.order.ordered(), space.points};
    if (out.k <= kLeaf) {
      launch_search<T, kAxes, 1, 8>(g, out, stream);
    } else {
      launch_search<T, kAxes, kMaxNeighbours / kLeaf, 2>(g, out, stream);
    }
    return cudaGetLastError();
  }

  static cudaError_t within(const NeighbourArguments& a, std::int32_t* num_found, const std::int64_t* row_ptr,
                            std::int32_t* col, void* distance2, cudaStream_t stream) {
    constexpr int kThreads = general_threads(kAxes), kWarps = kThreads / kLeaf;
    Arena arena(a.workspace);
    const GeneralWorkspace<T> space(a, arena);
    if (row_ptr == nullptr) {
      if (const cudaError_t status = prepare(a, space, stream)) return status;
    }
    const GeneralArguments<T> g{a, space.order.ordered(), space.points};
    search_general_radius<T, kAxes><<<blocks_for(a.num_queries, kWarps * kRadiusQueries), kThreads,
                                      grown_bytes<T>(a, space.points.axes, kWarps, kRadiusQueries), stream>>>(
        g, num_found, row_ptr, col, distance2);
    return cudaGetLastError();
  }
};

// Floats filter only where there is nothing to wrap; three axes and fewer are a case of their own.
template <class Call>
auto choose(const NeighbourArguments& a, Call&& call) {
  if (a.dimension <= 3) return call(General<double, 3>());
  if (a.is_double || a.box != nullptr) return call(General<double, 0>());
  return call(General<float, 0>());
}

}  // namespace

std::size_t general_workspace_bytes(const NeighbourArguments& a) {
  return choose(a, [&](auto general) { return general.workspace_bytes(a); });
}

cudaError_t general_nearest_neighbours(const NeighbourArguments& a, const NeighbourListsOut& out,
                                       cudaStream_t stream) {
  return choose(a, [&](auto general) { return general.nearest(a, out, stream); });
}

cudaError_t general_count_within(const NeighbourArguments& a, std::int32_t* num_found, cudaStream_t stream) {
  return choose(
      a, [&](auto general) { return general.within(a, num_found, nullptr, nullptr, nullptr, stream); });
}

cudaError_t general_list_within(const NeighbourArguments& a, const std::int64_t* row_ptr, std::int32_t* col,
                                void* distance2, cudaStream_t stream) {
  return choose(a, [&](auto general) { return general.within(a, nullptr, row_ptr, col, distance2, stream); });
}

}  // namespace topomask::cuda
