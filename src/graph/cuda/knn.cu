// Neighbours in up to three dimensions, of float points, in no periodic box: the plain case, with batches or
// queries of their own or without.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"
#include "core/cuda/primitives.h"
#include "graph/cuda/knn_few.cuh"
#include "graph/cuda/knn_general.h"
#include "graph/cuda/knn_search.cuh"
#include "graph/cuda/morton.cuh"
#include "graph/cuda/neighbour_order.cuh"

namespace topomask::cuda {

namespace {

constexpr int kLeafThreads = kLeaf * kLeaf;
constexpr int kSearchThreads = 128;
// So many neighbours of a cloud's own points come from lists that floats make.
constexpr int kMostListed = 16;
// Few points are counted into cells, about as many points a cell as a leaf has room for. More are sorted, by
// keys that are long enough for cells of one point.
constexpr std::int64_t kMaxCounted = 1 << 16;
constexpr int kCountedBits = 5, kCells = 1 << (3 * kCountedBits), kCellsAGroup = 32,
              kGroups = kCells / kCellsAGroup;

struct PlainWorkspace {
  NeighbourOrder order;                // with queries or several graphs
  float* partial;                      // [kBoxBlocks * 6]
  std::int32_t* cell_count;            // [kCells] points a cell
  std::uint64_t *key, *sorted_key;     // [count], or as many uint32
  std::int32_t *index, *sorted_index;  // [count]
  float4* point;                       // [leaves * 32] sorted: x, y, z, index
  BoxLevels levels;
  void* sort;
  std::size_t sort_bytes;
};

// Whether points need more than the curve through all of them.
bool is_ordered(const NeighbourArguments& a) {
  return a.query != nullptr || a.ptr != nullptr;
}

PlainWorkspace lay_out(const NeighbourArguments& a, Arena& arena) {
  PlainWorkspace space{};
  if (is_ordered(a)) {
    space.order = NeighbourOrder(a, arena);
    space.sorted_index = const_cast<std::int32_t*>(space.order.points().index);
  } else {
    space.partial = arena.take<float>(kBoxBlocks * 6);
    space.cell_count = arena.take<std::int32_t>(kCells);
    space.key = arena.take<std::uint64_t>(a.count);
    space.sorted_key = arena.take<std::uint64_t>(a.count);
    space.index = arena.take<std::int32_t>(a.count);
    space.sorted_index = arena.take<std::int32_t>(a.count);
    space.sort_bytes =
        a.count <= kMaxCounted ? 0 : SortPairs<std::uint64_t>::workspace_bytes(a.count, 3 * kFineBits);
    space.sort = arena.take<char>(static_cast<std::int64_t>(space.sort_bytes));
  }
  std::int64_t boxes = (a.count + kLeaf - 1) / kLeaf;
  space.point = arena.take<float4>(boxes * kLeaf);
  // The kernel that makes the leaves makes the level above them as well.
  for (int level = 0; level < kMaxLevels; ++level) {
    space.levels.count[level] = static_cast<std::int32_t>(boxes);
    space.levels.box[level] = arena.take<float4>(boxes * 2);
    if (boxes <= kLeaf && level > 0) {
      space.levels.top = space.levels.count[0] <= kLeaf ? 0 : level;
      break;
    }
    boxes = (boxes + kLeaf - 1) / kLeaf;
  }
  return space;
}

// The box around what all lanes hold; NaN is ignored, and a box of nothing is (infinity, -infinity).
__device__ void warp_box(float4& low, float4& high) {
  low = {min_lanes(low.x), min_lanes(low.y), min_lanes(low.z), 0};
  high = {max_lanes(high.x), max_lanes(high.y), max_lanes(high.z), 0};
}

__device__ float4 load_point(const float* coordinate, std::int64_t i, int dimension) {
  const float* at = coordinate + i * dimension;
  return {at[0], dimension > 1 ? at[1] : 0, dimension > 2 ? at[2] : 0, 0};
}
__device__ bool is_finite(const float4& p) {
  return isfinite(p.x) && isfinite(p.y) && isfinite(p.z);
}

// One block 1024 sorted points: their leaves, and the box around those.
__global__ void __launch_bounds__(kLeafThreads)
    make_leaves(const float* coordinate, std::int64_t count, int dimension, const std::int32_t* sorted_index,
                float4* point, BoxLevels levels) {
  __shared__ float4 low_of[kLeaf], high_of[kLeaf];
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kLeafThreads + threadIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kLeaf, warp = static_cast<int>(threadIdx.x) / kLeaf;
  const float nan = __int_as_float(0x7FC00000), infinity = infinity_float();
  float4 here = {nan, nan, nan, __int_as_float(-1)};
  if (position < count) {
    const std::int32_t index = sorted_index[position];
    here = load_point(coordinate, index, dimension);
    if (!is_finite(here)) here = {nan, nan, nan, 0};
    here.w = __int_as_float(index);
  }
  const std::int64_t leaf = position / kLeaf;
  if (leaf < levels.count[0]) point[position] = here;
  float4 low = {fminf(here.x, infinity), fminf(here.y, infinity), fminf(here.z, infinity), 0};
  float4 high = {fmaxf(here.x, -infinity), fmaxf(here.y, -infinity), fmaxf(here.z, -infinity), 0};
  warp_box(low, high);
  if (lane == 0) {
    low_of[warp] = low;
    high_of[warp] = high;
    if (leaf < levels.count[0]) {
      levels.box[0][2 * leaf] = low;
      levels.box[0][2 * leaf + 1] = high;
    }
  }
  __syncthreads();
  if (warp != 0) return;
  low = low_of[lane];
  high = high_of[lane];
  warp_box(low, high);
  if (lane == 0) {
    levels.box[1][2 * blockIdx.x] = low;
    levels.box[1][2 * blockIdx.x + 1] = high;
  }
}

// One warp a box of `level`, from the 32 boxes below it.
__global__ void make_boxes(const __grid_constant__ BoxLevels levels, int level) {
  const std::int64_t box = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLeaf;
  const std::int64_t child = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (box >= levels.count[level]) return;
  const float infinity = infinity_float();
  float4 low = {infinity, infinity, infinity, 0}, high = {-infinity, -infinity, -infinity, 0};
  if (child < levels.count[level - 1]) {
    low = levels.box[level - 1][2 * child];
    high = levels.box[level - 1][2 * child + 1];
  }
  warp_box(low, high);
  if (child % kLeaf == 0) {
    levels.box[level][2 * box] = low;
    levels.box[level][2 * box + 1] = high;
  }
}

// See knn_search.cuh.
template <bool kBatched, int kQueries_>
struct PlainSpace {
  using Real = float;
  static constexpr int kQueries = kQueries_;
  struct Box {
    float4 low, high;
  };

  const float4* points;
  const BoxLevels& levels;
  const float4* query;  // [kQueries] shared; w: the index it must not find
  const int2* range;    // [kQueries] shared: the positions of its graph, where there are several

  __device__ std::int32_t num_boxes(int level) const { return levels.count[level]; }
  __device__ int top() const { return levels.top; }
  __device__ Box box(int level, std::int32_t i) const {
    return {levels.box[level][2 * i], levels.box[level][2 * i + 1]};
  }
  __device__ float gap(int q, const Box& box) const {
    const float4 here = query[q];
    const float x = gap_along(box.low.x, box.high.x, here.x), y = gap_along(box.low.y, box.high.y, here.y),
                z = gap_along(box.low.z, box.high.z, here.z);
    return x * x + y * y + z * z;
  }
  __device__ float4 point(std::int64_t position) const { return points[position]; }
  __device__ std::int32_t index(const float4& p) const { return __float_as_int(p.w); }
  __device__ std::int32_t own(int q) const { return __float_as_int(query[q].w); }
  __device__ float distance(int q, const float4& p) const {
    const float4 here = query[q];
    const float x = here.x - p.x, y = here.y - p.y, z = here.z - p.z;
    return x * x + y * y + z * z;
  }
  __device__ double exact(int q, const float4& p, float) const {
    const float4 here = query[q];
    const double x = static_cast<double>(here.x) - p.x, y = static_cast<double>(here.y) - p.y,
                 z = static_cast<double>(here.z) - p.z;
    return x * x + y * y + z * z;
  }
  // A float's squared distance is off by less than 2^-20 of itself, squares that underflow by less than
  // FLT_MIN, and near FLT_MAX it may be infinite.
  __device__ float reach_of(double squared) const {
    const float distance = __double2float_ru(squared);
    return distance > 1e38f ? infinity_float() : distance * (1 + 0x1p-20f) + FLT_MIN;
  }
  __device__ bool meets(int q, std::int64_t begin, std::int64_t end) const {
    if constexpr (!kBatched) return true;
    const int2 positions = range[q];
    return begin < positions.y && end > positions.x;
  }
};

// The queries of a block of warps, in shared memory.
template <int kQueries>
struct PlainQueries {
  static constexpr int kWarps = kSearchThreads / kLeaf;
  float4 at[kWarps][kQueries];
  int2 range[kWarps][kQueries];
  std::int32_t row[kWarps][kQueries];
};

struct PlainArguments {
  NeighbourArguments a;
  OrderedQueries ordered;
  const float4* point;
  BoxLevels levels;
};

// Loads the kQueries queries from `first` on. Returns where they are on the curve, one per lane, and in
// `active` which of them there are.
template <bool kBatched, int kQueries>
__device__ std::int32_t load_queries(const PlainArguments& p, std::int64_t first, float4* at, int2* range,
                                     std::int32_t* row, unsigned& active) {
  const int lane = lane_id(), q = lane % kQueries;
  const NeighbourArguments& a = p.a;
  const std::int64_t i = min(first + q, a.num_queries - 1);
  const bool is_there = first + q < a.num_queries;
  std::int64_t position = i;
  float4 here;
  std::int32_t to;
  if (a.query == nullptr) {
    here = p.point[i];
    to = __float_as_int(here.w);
    if (!a.skip_own) here.w = __int_as_float(-2);
  } else {
    to = p.ordered.queries.index[i];
    here = load_point(static_cast<const float*>(a.query), to, a.dimension);
    here.w = __int_as_float(-2);
    position = position_of(p.ordered, i, a.count);
  }
  if (lane < kQueries) {
    at[q] = here;
    row[q] = is_there ? to : -1;
    if constexpr (kBatched) range[q] = graph_positions(p.ordered, i, a);
  }
  active = __ballot_sync(~0u, is_there && is_finite(here));
  __syncwarp();
  return static_cast<std::int32_t>(position / kLeaf);
}

// One warp kQueries neighbours along the curve. Blocks a multiprocessor: all warps of 32768 points at once,
// where registers suffice.
template <bool kBatched, int kSlots, int kQueries, bool kFew>
__global__ void __launch_bounds__(kSearchThreads, kSlots > 1 ? 1 : 8)
    search_leaves(const __grid_constant__ PlainArguments p, const __grid_constant__ NeighbourListsOut out) {
  __shared__ PlainQueries<kQueries> queries;
  const int warp = static_cast<int>(threadIdx.x) / kLeaf;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * (kSearchThreads / kLeaf) + warp) * kQueries;
  if (first >= p.a.num_queries) return;  // whole warps
  unsigned active;
  const std::int32_t seed = load_queries<kBatched, kQueries>(p, first, queries.at[warp], queries.range[warp],
                                                             queries.row[warp], active);
  const PlainSpace<kBatched, kQueries> space{p.point, p.levels, queries.at[warp], queries.range[warp]};
  Search<PlainSpace<kBatched, kQueries>, kSlots, kFew> search(space, out.k, p.a.limit, active);
  search.run(seed);
  search.write(queries.row[warp], out, p.a, /*is_double=*/false);
}

// One query whose neighbours floats cannot tell, in double. Seldom needed, and kept out of the loops of the
// others.
__device__ __noinline__ void search_exactly(const PlainArguments& p, const NeighbourListsOut& out,
                                            std::int32_t position, float4* query, std::int32_t* row) {
  const float4 here = p.point[position];
  if (lane_id() == 0) {
    *row = __float_as_int(here.w);
    *query = {here.x, here.y, here.z, p.a.skip_own ? here.w : __int_as_float(-2)};
  }
  __syncwarp();
  const PlainSpace<false, 1> space{p.point, p.levels, query, nullptr};
  Search<PlainSpace<false, 1>, 1, true> search(space, out.k, p.a.limit, is_finite(here) ? 1 : 0);
  search.run(position / kLeaf);
  search.write(row, out, p.a, /*is_double=*/false);
  __syncwarp();
}

// One warp kQueries neighbours along the curve, whose lists floats make.
template <int kQueries, int kLeastToMerge, int kBlocks>
__global__ void __launch_bounds__(kSearchThreads, kBlocks)
    search_few(const __grid_constant__ PlainArguments p, const __grid_constant__ NeighbourListsOut out) {
  constexpr int kWarps = kSearchThreads / kLeaf;
  __shared__ FewLists<kQueries> lists_of[kWarps];
  __shared__ std::int32_t row_of[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kLeaf, lane = lane_id();
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kWarps + warp) * kQueries;
  if (first >= p.a.count) return;  // whole warps
  FewLists<kQueries>& lists = lists_of[warp];
  const std::int64_t position = first + lane % kQueries;
  const float4 here = p.point[min(position, p.a.count - 1)];
  if (lane < kQueries) lists.query[lane] = here;
#pragma unroll
  for (int q = 0; q < kQueries; ++q) lists.list[q][lane] = {infinity_float(), 0};
  __syncwarp();
  const float reach = position < p.a.count && is_finite(here) ? infinity_float() : -1.0f;
  FewSearch<kQueries, kLeastToMerge> search{
      p.point, p.levels, lists, out.k, static_cast<std::int32_t>(first), p.a.skip_own, reach};
  search.run();
  unsigned undecided = 0;
#pragma unroll 1
  for (int q = 0; q < kQueries && first + q < p.a.count; ++q)
    undecided |= static_cast<unsigned>(!search.write(q, out, p.a.count)) << q;
  for (; undecided != 0; undecided &= undecided - 1) {
    const auto at = static_cast<std::int32_t>(first) + __ffs(static_cast<int>(undecided)) - 1;
    search_exactly(p, out, at, &lists.query[0], &row_of[warp]);
  }
}

constexpr int kRadiusQueries = 8;

__global__ void __launch_bounds__(kSearchThreads)
    search_radius(const __grid_constant__ PlainArguments p, std::int32_t* num_found,
                  const std::int64_t* row_ptr, std::int32_t* col, void* distance2) {
  using Space = PlainSpace<true, kRadiusQueries>;
  __shared__ PlainQueries<kRadiusQueries> queries;
  const int warp = static_cast<int>(threadIdx.x) / kLeaf;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * (kSearchThreads / kLeaf) + warp) * kRadiusQueries;
  if (first >= p.a.num_queries) return;  // whole warps
  unsigned active;
  load_queries<true, kRadiusQueries>(p, first, queries.at[warp], queries.range[warp], queries.row[warp],
                                     active);
  const Space space{p.point, p.levels, queries.at[warp], queries.range[warp]};
  RadiusSearch<Space> search(space, p.a.limit, active);
  search.run(queries.row[warp], row_ptr, col, distance2, /*is_double=*/false);
  write_counts(search, queries.row[warp], num_found);
}

// cell[i] and how many points of that cell were counted before point i.
template <Curve kCurve>
__global__ void __launch_bounds__(kKeyThreads)
    count_cells(const float* coordinate, std::int64_t count, int dimension, const float* partial,
                std::uint32_t* cell, std::int32_t* rank, std::int32_t* cell_count) {
  const KeyScale<kCountedBits, kCurve> scale(partial, dimension);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x;
  if (i >= count) return;
  const auto here = static_cast<std::uint32_t>(scale.key(coordinate + i * dimension));
  cell[i] = here;
  rank[i] = atomicAdd(&cell_count[here], 1);
}

// Moves points to their cells: behind all groups before theirs, all cells of the group before theirs, and
// those that were counted before them. Which came first within a cell is up to chance, and does not matter to
// the search.
__global__ void __launch_bounds__(kGroups)
    scatter_points(const std::uint32_t* cell, const std::int32_t* rank, const std::int32_t* cell_count,
                   std::int64_t count, std::int32_t* sorted_index) {
  __shared__ std::int32_t before[kGroups], of_warp[kGroups / 32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  // A warp reads the cells of its 32 groups side by side, four a lane.
  constexpr int kLanesAGroup = kCellsAGroup / 4, kGroupsAStep = 32 / kLanesAGroup;
  const auto* cells = reinterpret_cast<const int4*>(cell_count + warp * 32 * kCellsAGroup);
#pragma unroll
  for (int step = 0; step < kLanesAGroup; ++step) {
    const int4 four = cells[step * 32 + lane];
    const std::int32_t group = sum_lanes<kLanesAGroup>(four.x + four.y + four.z + four.w);
    if (lane % kLanesAGroup == 0) before[warp * 32 + step * kGroupsAStep + lane / kLanesAGroup] = group;
  }
  __syncwarp();
  const std::int32_t own = before[thread], sum = running_sum_of_lanes(own);
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  if (warp == 0) of_warp[lane] = running_sum_of_lanes(of_warp[lane]);
  __syncthreads();
  before[thread] = sum - own + (warp > 0 ? of_warp[warp - 1] : 0);
  __syncthreads();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kGroups + thread;
  if (i >= count) return;
  const auto here = static_cast<std::int32_t>(cell[i]);
  std::int32_t position = before[here / kCellsAGroup] + rank[i];
  for (int c = here / kCellsAGroup * kCellsAGroup; c < here; ++c) position += cell_count[c];
  sorted_index[position] = static_cast<std::int32_t>(i);
}

template <Curve kCurve = Curve::hilbert>  // the benchmark compares them
cudaError_t sort_points(const NeighbourArguments& a, const PlainWorkspace& space, cudaStream_t stream) {
  if (is_ordered(a)) return space.order.sort(a, stream);
  const auto* coordinate = static_cast<const float*>(a.coordinate);
  if (a.count > kMaxCounted) {
    launch_keys<kCurve>(coordinate, a.count, a.dimension, space.partial, space.key, space.index, stream);
    if (const cudaError_t status = cudaGetLastError()) return status;
    return SortPairs<std::uint64_t>::run(space.key, space.index, a.count, 3 * kFineBits, space.sorted_key,
                                         space.sorted_index, space.sort, space.sort_bytes, stream);
  }
  static_assert(kGroups == 1024 && kGroups % kKeyThreads == 0);
  auto* cell = reinterpret_cast<std::uint32_t*>(space.key);
  partial_boxes<<<kBoxBlocks, kKeyThreads, 0, stream>>>(coordinate, a.count, a.dimension, space.partial,
                                                        space.cell_count, kCells);
  count_cells<kCurve><<<blocks_for(a.count, kKeyThreads), kKeyThreads, 0, stream>>>(
      coordinate, a.count, a.dimension, space.partial, cell, space.index, space.cell_count);
  scatter_points<<<blocks_for(a.count, kGroups), kGroups, 0, stream>>>(cell, space.index, space.cell_count,
                                                                       a.count, space.sorted_index);
  return cudaGetLastError();
}

cudaError_t make_plain_boxes(const NeighbourArguments& a, const PlainWorkspace& space, cudaStream_t stream) {
  make_leaves<<<blocks_for(a.count, kLeafThreads), kLeafThreads, 0, stream>>>(
      static_cast<const float*>(a.coordinate), a.count, a.dimension, space.sorted_index, space.point,
      space.levels);
  constexpr int kBoxThreads = 256;
  for (int level = 2; level <= space.levels.top; ++level) {
    const std::int64_t threads = static_cast<std::int64_t>(space.levels.count[level]) * kLeaf;
    make_boxes<<<blocks_for(threads, kBoxThreads), kBoxThreads, 0, stream>>>(space.levels, level);
  }
  return cudaGetLastError();
}

PlainArguments plain_arguments(const NeighbourArguments& a, const PlainWorkspace& space) {
  return {a, is_ordered(a) ? space.order.ordered() : OrderedQueries{}, space.point, space.levels};
}

unsigned search_blocks(const NeighbourArguments& a, int queries) {
  return blocks_for(a.num_queries, kSearchThreads / kLeaf * queries);
}

template <bool kBatched, int kSlots, int kQueries, bool kFew>
void launch_search(const PlainArguments& p, const NeighbourListsOut& out, cudaStream_t stream) {
  search_leaves<kBatched, kSlots, kQueries, kFew>
      <<<search_blocks(p.a, kQueries), kSearchThreads, 0, stream>>>(p, out);
}

template <int kQueries, int kLeastToMerge, int kBlocks>
void launch_few(const PlainArguments& p, const NeighbourListsOut& out, cudaStream_t stream) {
  search_few<kQueries, kLeastToMerge, kBlocks>
      <<<search_blocks(p.a, kQueries), kSearchThreads, 0, stream>>>(p, out);
}

// One graph has kernels of its own, which never ask for a query's graph.
void launch_search(const PlainArguments& p, const NeighbourListsOut& out, cudaStream_t stream) {
  if (out.k > 2 * kLeaf) {
    launch_search<true, kMaxNeighbours / kLeaf, 2, false>(p, out, stream);
  } else if (out.k > kLeaf) {
    launch_search<true, 2, 4, false>(p, out, stream);
  } else if (p.a.ptr != nullptr) {
    launch_search<true, 1, 8, false>(p, out, stream);
  } else if (p.a.query == nullptr && out.k <= kMostListed && std::isinf(p.a.limit)) {
    if (p.a.count > kMaxCounted) {
      launch_few<8, 6, 12>(p, out, stream);
    } else {
      launch_few<4, 6, 12>(p, out, stream);
    }
  } else if (out.k > kFewNeighbours) {
    launch_search<false, 1, 8, false>(p, out, stream);
  } else {
    launch_search<false, 1, 8, true>(p, out, stream);
  }
}

void launch_radius(const PlainArguments& p, std::int32_t* num_found, const std::int64_t* row_ptr,
                   std::int32_t* col, void* distance2, cudaStream_t stream) {
  search_radius<<<search_blocks(p.a, kRadiusQueries), kSearchThreads, 0, stream>>>(p, num_found, row_ptr, col,
                                                                                   distance2);
}

bool is_plain(const NeighbourArguments& a) {
  return !a.is_double && a.dimension <= 3 && a.box == nullptr;
}

}  // namespace

std::size_t neighbour_workspace_bytes(const NeighbourArguments& a) {
  Arena arena(nullptr);
  if (!is_plain(a)) return general_workspace_bytes(a);
  lay_out(a, arena);
  return arena.used();
}

cudaError_t nearest_neighbours(const NeighbourArguments& a, const NeighbourListsOut& out,
                               cudaStream_t stream) {
  if (!is_plain(a)) return general_nearest_neighbours(a, out, stream);
  Arena arena(a.workspace);
  const PlainWorkspace space = lay_out(a, arena);
  if (const cudaError_t status = sort_points(a, space, stream)) return status;
  if (const cudaError_t status = make_plain_boxes(a, space, stream)) return status;
  launch_search(plain_arguments(a, space), out, stream);
  return cudaGetLastError();
}

cudaError_t count_within(const NeighbourArguments& a, std::int32_t* num_found, cudaStream_t stream) {
  if (!is_plain(a)) return general_count_within(a, num_found, stream);
  Arena arena(a.workspace);
  const PlainWorkspace space = lay_out(a, arena);
  if (const cudaError_t status = sort_points(a, space, stream)) return status;
  if (const cudaError_t status = make_plain_boxes(a, space, stream)) return status;
  launch_radius(plain_arguments(a, space), num_found, nullptr, nullptr, nullptr, stream);
  return cudaGetLastError();
}

cudaError_t list_within(const NeighbourArguments& a, const std::int64_t* row_ptr, std::int32_t* col,
                        void* distance2, cudaStream_t stream) {
  if (!is_plain(a)) return general_list_within(a, row_ptr, col, distance2, stream);
  Arena arena(a.workspace);
  const PlainWorkspace space = lay_out(a, arena);
  launch_radius(plain_arguments(a, space), nullptr, row_ptr, col, distance2, stream);
  return cudaGetLastError();
}

cudaError_t morton_keys(const float* coordinate, std::int64_t count, int dimension, float* partial,
                        std::uint64_t* key, std::int32_t* index, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  launch_keys<Curve::z_order>(coordinate, count, dimension, partial, key, index, stream);
  return cudaGetLastError();
}

}  // namespace topomask::cuda
