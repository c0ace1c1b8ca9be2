#include "graph/cuda/knn.h"

#include <algorithm>
#include <cfloat>
#include <climits>

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"
#include "core/cuda/primitives.h"
#include "graph/cuda/morton.cuh"

namespace topomask::cuda {

namespace {

constexpr int kLeaf = 32;      // points a leaf and boxes a box: one a lane
constexpr int kMaxLevels = 7;  // 32^7 boxes exceed every index
constexpr int kLeafThreads = kLeaf * kLeaf;
constexpr int kSearchThreads = 128;
constexpr int kQueries = 8;  // of a warp that searches
// Few points are counted into cells, about as many points a cell as a leaf has room for. More are sorted, by
// keys that are long enough for cells of one point.
constexpr std::int64_t kMaxCounted = 1 << 16;
constexpr int kCountedBits = 5, kCells = 1 << (3 * kCountedBits), kCellsAGroup = 32,
              kGroups = kCells / kCellsAGroup;

struct BoxLevels {
  int top = 0;                          // the first level of at most 32 boxes
  std::int32_t count[kMaxLevels] = {};  // boxes a level; level 0 holds the leaves
  float4* box[kMaxLevels] = {};         // [count, 2] lower and upper corner
};

struct Workspace {
  float* partial;                      // [kBoxBlocks * 6]
  std::int32_t* cell_count;            // [kCells] points a cell
  std::uint64_t *key, *sorted_key;     // [count], or as many uint32
  std::int32_t *index, *sorted_index;  // [count]
  float4* point;                       // [leaves * 32] sorted: x, y, z, index
  BoxLevels levels;
  void* sort;
  std::size_t sort_bytes;
};

// Lays the arrays out one behind another; returns the bytes in all.
std::size_t lay_out(char* memory, std::int64_t count, Workspace& space) {
  std::size_t used = 0;
  const auto take = [&](std::size_t bytes) {
    char* at = memory == nullptr ? nullptr : memory + used;
    used += (bytes + 255) / 256 * 256;
    return at;
  };
  const auto points = static_cast<std::size_t>(count);
  space.partial = reinterpret_cast<float*>(take(kBoxBlocks * 6 * sizeof(float)));
  space.cell_count = reinterpret_cast<std::int32_t*>(take(kCells * sizeof(std::int32_t)));
  space.key = reinterpret_cast<std::uint64_t*>(take(8 * points));
  space.sorted_key = reinterpret_cast<std::uint64_t*>(take(8 * points));
  space.index = reinterpret_cast<std::int32_t*>(take(4 * points));
  space.sorted_index = reinterpret_cast<std::int32_t*>(take(4 * points));
  std::int64_t boxes = (count + kLeaf - 1) / kLeaf;
  space.point = reinterpret_cast<float4*>(take(static_cast<std::size_t>(boxes) * kLeaf * sizeof(float4)));
  // The kernel that makes the leaves makes the level above them as well.
  for (int level = 0; level < kMaxLevels; ++level) {
    space.levels.count[level] = static_cast<std::int32_t>(boxes);
    space.levels.box[level] =
        reinterpret_cast<float4*>(take(static_cast<std::size_t>(boxes) * 2 * sizeof(float4)));
    if (boxes <= kLeaf && level > 0) {
      space.levels.top = space.levels.count[0] <= kLeaf ? 0 : level;
      break;
    }
    boxes = (boxes + kLeaf - 1) / kLeaf;
  }
  space.sort_bytes =
      count <= kMaxCounted ? 0 : SortPairs<std::uint64_t>::workspace_bytes(count, 3 * kFineBits);
  space.sort = take(space.sort_bytes);
  return used;
}

// The box around what all lanes hold; NaN is ignored, and a box of nothing is (infinity, -infinity).
__device__ void warp_box(float4& low, float4& high) {
  low = {min_lanes(low.x), min_lanes(low.y), min_lanes(low.z), 0};
  high = {max_lanes(high.x), max_lanes(high.y), max_lanes(high.z), 0};
}

// One block 1024 sorted points: their leaves, and the box around those.
__global__ void __launch_bounds__(kLeafThreads)
    make_leaves(const float* coordinate, std::int64_t count, int dimension, const std::int32_t* sorted_index,
                float4* point, BoxLevels levels) {
  __shared__ float4 low_of[kLeaf], high_of[kLeaf];
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kLeafThreads + threadIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kLeaf, warp = static_cast<int>(threadIdx.x) / kLeaf;
  const float nan = __int_as_float(0x7FC00000), infinity = __int_as_float(0x7F800000);
  float4 here = {nan, nan, nan, __int_as_float(-1)};
  if (position < count) {
    const std::int32_t index = sorted_index[position];
    const float* at = coordinate + static_cast<std::int64_t>(index) * dimension;
    here = {at[0], dimension > 1 ? at[1] : 0, dimension > 2 ? at[2] : 0, 0};
    if (!isfinite(here.x) || !isfinite(here.y) || !isfinite(here.z)) here = {nan, nan, nan, 0};
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
  const float infinity = __int_as_float(0x7F800000);
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

__device__ float gap(float low_a, float high_a, float low_b, float high_b) {
  return fmaxf(fmaxf(low_a - high_b, low_b - high_a), 0.0f);
}

__device__ float squared_gap(const float4& low_a, const float4& high_a, const float4& low_b,
                             const float4& high_b) {
  const float x = gap(low_a.x, high_a.x, low_b.x, high_b.x), y = gap(low_a.y, high_a.y, low_b.y, high_b.y),
              z = gap(low_a.z, high_a.z, low_b.z, high_b.z);
  return x * x + y * y + z * z;
}

// A float's squared distance is off by less than 2^-20 of itself, squares that underflow by less than
// FLT_MIN, and near FLT_MAX it may be infinite. Nothing beyond this bound, as a float, is as near as
// `distance`.
__device__ float reach_of(float distance) {
  return distance > 1e38f ? __int_as_float(0x7F800000) : distance * (1 + 0x1p-20f) + FLT_MIN;
}

// The nearest candidates of one query, ascending, spread over the lanes of a warp: slot s is in lane s % 32.
// An entry is taken in by all lanes at once, in the same few steps however many there are.
template <int kSlots>  // a lane
struct Nearest {
  double distance[kSlots];
  std::int32_t index[kSlots];
  float
      reach;  // nothing farther by a float's distance can be among the k nearest; negative: there is no query

  __device__ void clear(bool active) {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      distance[s] = __longlong_as_double(0x7FF0000000000000);
      index[s] = INT_MAX;
    }
    reach = active ? __int_as_float(0x7F800000) : -1.0f;
  }

  // `new_distance` and `new_index` are the same in all lanes.
  __device__ void add(double new_distance, std::int32_t new_index, int k) {
    const int lane = static_cast<int>(threadIdx.x) % kLeaf;
    int position = 0;
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      position += __popc(__ballot_sync(
          ~0u, distance[s] < new_distance || (distance[s] == new_distance && index[s] < new_index)));
    }
#pragma unroll
    for (int s = kSlots - 1; s >= 0; --s) {
      double below_distance = __shfl_up_sync(~0u, distance[s], 1);
      std::int32_t below_index = __shfl_up_sync(~0u, index[s], 1);
      if (s > 0) {
        const double carried = __shfl_sync(~0u, distance[s - (s > 0)], kLeaf - 1);
        const std::int32_t carried_index = __shfl_sync(~0u, index[s - (s > 0)], kLeaf - 1);
        if (lane == 0) {
          below_distance = carried;
          below_index = carried_index;
        }
      }
      const int slot = s * kLeaf + lane;
      if (slot > position) {
        distance[s] = below_distance;
        index[s] = below_index;
      } else if (slot == position) {
        distance[s] = new_distance;
        index[s] = new_index;
      }
    }
    double last = distance[0];
    if constexpr (kSlots > 1) last = k > kLeaf ? distance[1] : distance[0];
    reach = reach_of(__double2float_ru(__shfl_sync(~0u, last, (k - 1) % kLeaf)));
  }
};

// A warp and its queries: all lanes hold all queries, a lane a candidate.
template <int kSlots>
struct Search {
  const float4* point;
  const BoxLevels& levels;
  const float4* query;  // [kQueries] shared; w: the index
  int k;
  Nearest<kSlots> nearest[kQueries];

  __device__ int lane() const { return static_cast<int>(threadIdx.x) % kLeaf; }

  // Which of up to 32 boxes of a level any query may need, one box a lane.
  __device__ unsigned near_boxes(int level, std::int32_t first) const {
    const std::int32_t box = first + lane();
    bool is_near = false;
    if (box < levels.count[level]) {
      const float4 low = levels.box[level][2 * box], high = levels.box[level][2 * box + 1];
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        const float4 here = query[q];
        is_near = is_near || !(squared_gap(here, here, low, high) > nearest[q].reach);
      }
    }
    return __ballot_sync(~0u, is_near);
  }

  // Which queries may need the leaf, one query a lane.
  __device__ unsigned queries_near(std::int32_t leaf) const {
    const int q = lane() % kQueries;
    float reach = nearest[0].reach;
#pragma unroll
    for (int r = 1; r < kQueries; ++r) reach = q == r ? nearest[r].reach : reach;
    const float4 here = query[q];
    return __ballot_sync(
        ~0u, !(squared_gap(here, here, levels.box[0][2 * leaf], levels.box[0][2 * leaf + 1]) > reach));
  }

  // A first bound on the reach: the k-th smallest distance within the leaf, for small k. Equal ones count
  // once, which makes the bound larger if anything.
  __device__ float first_reach(float distance) const {
    unsigned bits = __float_as_uint(distance), smallest = 0;
    for (int j = 0; j < k; ++j) {
      smallest = __reduce_min_sync(~0u, bits);
      if (bits == smallest) bits = 0x7F800000;
    }
    return reach_of(__uint_as_float(smallest));
  }

  __device__ void visit_leaf(std::int32_t leaf, bool is_own) {
    constexpr int kMostSelected = 8;
    const float infinity = __int_as_float(0x7F800000);
    const unsigned wanted = queries_near(leaf);
    if (wanted == 0) return;
    const float4 p = point[static_cast<std::int64_t>(leaf) * kLeaf + lane()];
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      if ((wanted >> q & 1) == 0) continue;
      Nearest<kSlots>& found = nearest[q];
      const float4 here = query[q];
      const float x = here.x - p.x, y = here.y - p.y, z = here.z - p.z;
      float distance = x * x + y * y + z * z;
      const bool other = __float_as_int(p.w) != __float_as_int(here.w) && distance <= infinity;  // not NaN
      if (is_own && k <= kMostSelected) {
        const float reach = first_reach(other ? distance : infinity);
        if (found.reach >= 0) found.reach = reach;
      }
      unsigned near = __ballot_sync(~0u, other && distance <= found.reach);
      if (near == 0) continue;
      const double dx = static_cast<double>(here.x) - p.x, dy = static_cast<double>(here.y) - p.y,
                   dz = static_cast<double>(here.z) - p.z;
      const double exact = dx * dx + dy * dy + dz * dz;
      while (near != 0) {
        const int source = __ffs(static_cast<int>(near)) - 1;
        found.add(__shfl_sync(~0u, exact, source), __shfl_sync(~0u, __float_as_int(p.w), source), k);
        // The reach shrinks with every find.
        near &= near - 1;
        near &= __ballot_sync(~0u, distance <= found.reach);
      }
    }
  }

  __device__ void run(std::int32_t own) {
    // Leaves that are near along the curve come first, so that most others are too far when their turn comes.
    const std::int32_t around = 1 + k / 16;
    const std::int32_t first = own - around > 0 ? own - around : 0;
    const std::int32_t last = own + around < levels.count[0] - 1 ? own + around : levels.count[0] - 1;
    std::int32_t base[kMaxLevels];
    unsigned open[kMaxLevels];
    int level = levels.top;
    std::int32_t step = 0;
    bool descending = false;
    while (true) {
      std::int32_t leaf = -1;
      if (step <= last - first) {
        leaf = step == 0 ? own : step <= own - first ? first + step - 1 : first + step;
        ++step;
      } else {
        if (!descending) {
          descending = true;
          base[level] = 0;
          open[level] = near_boxes(level, 0);
        }
        while (open[level] == 0 && level < levels.top) ++level;
        if (open[level] == 0) return;
        const std::int32_t box = base[level] + __ffs(static_cast<int>(open[level])) - 1;
        open[level] &= open[level] - 1;
        if (level > 0) {
          --level;
          base[level] = box * kLeaf;
          open[level] = near_boxes(level, base[level]);
          continue;
        }
        if (box >= first && box <= last) continue;
        leaf = box;
      }
      visit_leaf(leaf, leaf == own);
    }
  }

  // Rank of the neighbour in slot s of this lane by its index.
  __device__ int rank_by_index(const Nearest<kSlots>& found, int s) const {
    int rank = 0;
#pragma unroll
    for (int t = 0; t < kSlots; ++t) {
      for (int j = 0; j < kLeaf && t * kLeaf + j < k; ++j) {
        rank += __shfl_sync(~0u, found.index[t], j) < found.index[s];
      }
    }
    return rank;
  }

  __device__ void write(const KnnArguments& a) {
#pragma unroll
    for (int q = 0; q < kQueries; ++q) {
      const std::int64_t row = __float_as_int(query[q].w);
      if (row < 0) continue;  // padding
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        // Only points that are not finite can leave slots empty; they still name valid nodes.
        if (nearest[q].index[s] == INT_MAX) {
          nearest[q].index[s] = static_cast<std::int32_t>((row + 1 + s * kLeaf + lane()) % a.count);
        }
      }
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        const int slot = s * kLeaf + lane();
        const int rank = a.ascending ? rank_by_index(nearest[q], s) : slot;
        if (slot >= k) continue;
        a.neighbour[row * k + rank] = nearest[q].index[s];
        if (a.weight != nullptr) a.weight[row * k + rank] = 1.0f;
      }
      if (a.row_ptr != nullptr && lane() == 0) {
        a.row_ptr[row] = row * k;
        if (row == a.count - 1) a.row_ptr[a.count] = a.count * k;
      }
    }
  }
};

// One warp kQueries neighbours along the curve, all of one leaf. Blocks a multiprocessor: all warps of 32768
// points at once, where registers suffice.
template <int kSlots>
__global__ void __launch_bounds__(kSearchThreads, kSlots == 1 ? 8 : 1)
    search_leaves(const float4* point, const __grid_constant__ BoxLevels levels,
                  const __grid_constant__ KnnArguments a) {
  __shared__ float4 queries[kSearchThreads / kLeaf][kQueries];
  const int lane = static_cast<int>(threadIdx.x) % kLeaf, warp = static_cast<int>(threadIdx.x) / kLeaf;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * (kSearchThreads / kLeaf) + warp) * kQueries;
  if (first >= a.count) return;  // whole warps
  if (lane < kQueries) queries[warp][lane] = point[first + lane];
  __syncwarp();
  Search<kSlots> search{point, levels, queries[warp], a.k, {}};
#pragma unroll
  for (int q = 0; q < kQueries; ++q) search.nearest[q].clear(isfinite(queries[warp][q].x));
  search.run(static_cast<std::int32_t>(first / kLeaf));
  search.write(a);
}

template <int kSlots>
void launch_search(const KnnArguments& a, const Workspace& space, cudaStream_t stream) {
  constexpr int kPerBlock = kSearchThreads / kLeaf * kQueries;
  search_leaves<kSlots>
      <<<static_cast<unsigned>((a.count + kPerBlock - 1) / kPerBlock), kSearchThreads, 0, stream>>>(
          space.point, space.levels, a);
}

// cell[i] and how many points of that cell were counted before point i.
__global__ void __launch_bounds__(kKeyThreads)
    count_cells(const float* coordinate, std::int64_t count, int dimension, const float* partial,
                std::uint32_t* cell, std::int32_t* rank, std::int32_t* cell_count) {
  const KeyScale<kCountedBits> scale(partial, dimension);
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

cudaError_t sort_points(const KnnArguments& a, const Workspace& space, cudaStream_t stream) {
  if (a.count > kMaxCounted) {
    launch_morton_keys<std::uint64_t, kFineBits>(a.coordinate, a.count, a.dimension, space.partial, space.key,
                                                 space.index, stream);
    if (const cudaError_t status = cudaGetLastError()) return status;
    return SortPairs<std::uint64_t>::run(space.key, space.index, a.count, 3 * kFineBits, space.sorted_key,
                                         space.sorted_index, space.sort, space.sort_bytes, stream);
  }
  static_assert(kGroups == 1024 && kGroups % kKeyThreads == 0);
  auto* cell = reinterpret_cast<std::uint32_t*>(space.key);
  partial_boxes<<<kBoxBlocks, kKeyThreads, 0, stream>>>(a.coordinate, a.count, a.dimension, space.partial,
                                                        space.cell_count, kCells);
  count_cells<<<blocks_for(a.count, kKeyThreads), kKeyThreads, 0, stream>>>(
      a.coordinate, a.count, a.dimension, space.partial, cell, space.index, space.cell_count);
  scatter_points<<<blocks_for(a.count, kGroups), kGroups, 0, stream>>>(cell, space.index, space.cell_count,
                                                                       a.count, space.sorted_index);
  return cudaGetLastError();
}

}  // namespace

std::size_t knn_workspace_bytes(std::int64_t count) {
  Workspace space{};
  return lay_out(nullptr, count, space);
}

cudaError_t nearest_neighbours(const KnnArguments& a, cudaStream_t stream) {
  Workspace space{};
  lay_out(static_cast<char*>(a.workspace), a.count, space);
  if (const cudaError_t status = sort_points(a, space, stream)) return status;
  make_leaves<<<static_cast<unsigned>((a.count + kLeafThreads - 1) / kLeafThreads), kLeafThreads, 0,
                stream>>>(a.coordinate, a.count, a.dimension, space.sorted_index, space.point, space.levels);
  for (int level = 2; level <= space.levels.top; ++level) {
    const std::int64_t threads = static_cast<std::int64_t>(space.levels.count[level]) * kLeaf;
    make_boxes<<<static_cast<unsigned>((threads + 255) / 256), 256, 0, stream>>>(space.levels, level);
  }
  if (a.k <= kLeaf) {
    launch_search<1>(a, space, stream);
  } else {
    launch_search<2>(a, space, stream);
  }
  return cudaGetLastError();
}

cudaError_t morton_keys(const float* coordinate, std::int64_t count, int dimension, float* partial,
                        std::uint64_t* key, std::int32_t* index, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  launch_morton_keys<std::uint64_t, kFineBits>(coordinate, count, dimension, partial, key, index, stream);
  return cudaGetLastError();
}

}  // namespace topomask::cuda
