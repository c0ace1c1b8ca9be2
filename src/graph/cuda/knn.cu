#include "graph/cuda/knn.h"

#include <algorithm>
#include <cfloat>
#include <climits>

#include "core/cuda/primitives.h"
#include "graph/cuda/morton.cuh"

namespace topomask::cuda {

namespace {

constexpr int kLeaf = 32;      // points a leaf and boxes a box: one a lane
constexpr int kMaxLevels = 7;  // 32^7 boxes exceed every index
constexpr int kLeafThreads = kLeaf * kLeaf;
constexpr int kSearchThreads = 64;
// Few points sort faster by short keys; many need fine ones, or cells fill up.
constexpr std::int64_t kMaxCoarse = 1 << 17;

struct BoxLevels {
  int top = 0;                          // the first level of at most 32 boxes
  std::int32_t count[kMaxLevels] = {};  // boxes a level; level 0 holds the leaves
  float4* box[kMaxLevels] = {};         // [count, 2] lower and upper corner
};

struct Workspace {
  float* partial;                      // [kBoxBlocks * 6]
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
  space.sort_bytes = count <= kMaxCoarse ? SortPairs<std::uint32_t>::workspace_bytes(count, 3 * kCoarseBits)
                                         : SortPairs<std::uint64_t>::workspace_bytes(count, 3 * kFineBits);
  space.sort = take(space.sort_bytes);
  return used;
}

__device__ float warp_min(float x) {
  for (int step = 16; step > 0; step /= 2) x = fminf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}
__device__ float warp_max(float x) {
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

// The box around what all lanes hold; NaN is ignored, and a box of nothing is (infinity, -infinity).
__device__ void warp_box(float4& low, float4& high) {
  low = {warp_min(low.x), warp_min(low.y), warp_min(low.z), 0};
  high = {warp_max(high.x), warp_max(high.y), warp_max(high.z), 0};
}

// One block 1024 sorted points: their leaves, and the box around those.
__global__ void __launch_bounds__(kLeafThreads)
    make_leaves(const float* coordinate, std::int64_t count, int dimension, const std::int32_t* sorted_index,
                float4* point, BoxLevels levels) {
  __shared__ float4 low_of[kLeaf], high_of[kLeaf];
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kLeafThreads + threadIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kLeaf, warp = static_cast<int>(threadIdx.x) / kLeaf;
  const float nan = __int_as_float(0x7FC00000), infinity = __int_as_float(0x7F800000);
  float4 here = {nan, nan, nan, 0};
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

// The nearest candidates of one query, in registers. There are as many slots as the next power of two; those
// that k leaves over are taken by entries nearer than anything, so that the last slot is always the k-th
// neighbour.
template <int kSlots>
struct Nearest {
  double distance[kSlots];
  std::int32_t index[kSlots];
  float reach;  // nothing farther by a float's distance can be among the nearest; negative: no query here

  __device__ void clear(int k, bool active) {
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      distance[j] = j < kSlots - k ? -1.0 : __longlong_as_double(0x7FF0000000000000);
      index[j] = j < kSlots - k ? -1 : INT_MAX;
    }
    reach = active ? __int_as_float(0x7F800000) : -1.0f;
  }

  __device__ void add(double new_distance, std::int32_t new_index) {
#pragma unroll
    for (int j = 0; j < kSlots; ++j) {
      const bool before = new_distance < distance[j] || (new_distance == distance[j] && new_index < index[j]);
      const double old_distance = distance[j];
      const std::int32_t old_index = index[j];
      distance[j] = before ? new_distance : old_distance;
      index[j] = before ? new_index : old_index;
      new_distance = before ? old_distance : new_distance;
      new_index = before ? old_index : new_index;
    }
    // A float's squared distance is off by less than 2^-20 of itself, squares that underflow by less than
    // FLT_MIN, and near FLT_MAX it may be infinite.
    const float bound = __double2float_ru(distance[kSlots - 1]);
    reach = bound > 1e38f ? __int_as_float(0x7F800000) : bound * (1 + 0x1p-20f) + FLT_MIN;
  }

  __device__ void sort_by_index() {
#pragma unroll
    for (int round = 0; round < kSlots; ++round) {
#pragma unroll
      for (int j = round % 2; j + 1 < kSlots; j += 2) {
        const std::int32_t a = index[j], b = index[j + 1];
        index[j] = min(a, b);
        index[j + 1] = max(a, b);
      }
    }
  }
};

template <int kSlots>
struct Search {
  const float4* point;
  const BoxLevels& levels;
  float4 query;  // w: its index
  Nearest<kSlots> nearest;

  // Which of up to 32 boxes of a level the queries of the warp, all within (low, high), may need.
  __device__ unsigned near_boxes(int level, std::int64_t first, const float4& low, const float4& high) const {
    const std::int64_t box = first + static_cast<int>(threadIdx.x) % kLeaf;
    // Bits of floats order as integers do, as long as one of two is positive.
    const float reach = __int_as_float(__reduce_max_sync(~0u, __float_as_int(nearest.reach)));
    bool is_near = false;
    if (box < levels.count[level]) {
      is_near = !(squared_gap(low, high, levels.box[level][2 * box], levels.box[level][2 * box + 1]) > reach);
    }
    return __ballot_sync(~0u, is_near);
  }

  __device__ bool within_reach(const float4& p) const {
    const float x = query.x - p.x, y = query.y - p.y, z = query.z - p.z;
    return x * x + y * y + z * z <= nearest.reach;
  }

  __device__ void visit_leaf(std::int64_t leaf) {
    const bool wanted =
        !(squared_gap(query, query, levels.box[0][2 * leaf], levels.box[0][2 * leaf + 1]) > nearest.reach);
    if (!__any_sync(~0u, wanted)) return;
    const float4* candidate = point + leaf * kLeaf;
    unsigned found = 0;
#pragma unroll 8
    for (int c = 0; c < kLeaf; ++c) {
      const float4 p = candidate[c];
      if (within_reach(p) && __float_as_int(p.w) != __float_as_int(query.w)) found |= 1u << c;
    }
    // Every lane takes in its own finds, so that lanes do not wait for each other's candidates.
    for (; found != 0; found &= found - 1) {
      const float4 p = candidate[__ffs(static_cast<int>(found)) - 1];
      if (!within_reach(p)) continue;  // the reach shrinks with every find
      const double x = static_cast<double>(query.x) - p.x, y = static_cast<double>(query.y) - p.y,
                   z = static_cast<double>(query.z) - p.z;
      nearest.add(x * x + y * y + z * z, __float_as_int(p.w));
    }
    __syncwarp();
  }

  __device__ void run(std::int64_t own, int k) {
    const float4 low = levels.box[0][2 * own], high = levels.box[0][2 * own + 1];
    // Leaves that are near along the curve come first, so that most others are too far when their turn comes.
    const std::int64_t around = 1 + k / 16;
    const std::int64_t first = own - around > 0 ? own - around : 0;
    const std::int64_t last = own + around < levels.count[0] - 1 ? own + around : levels.count[0] - 1;
    std::int64_t base[kMaxLevels];
    unsigned open[kMaxLevels];
    int level = levels.top;
    std::int64_t step = 0;
    bool descending = false;
    while (true) {
      std::int64_t leaf = -1;
      if (step <= last - first) {
        leaf = step == 0 ? own : step <= own - first ? first + step - 1 : first + step;
        ++step;
      } else {
        if (!descending) {
          descending = true;
          base[level] = 0;
          open[level] = near_boxes(level, 0, low, high);
        }
        while (open[level] == 0 && level < levels.top) ++level;
        if (open[level] == 0) return;
        const std::int64_t box = base[level] + __ffs(static_cast<int>(open[level])) - 1;
        open[level] &= open[level] - 1;
        if (level > 0) {
          --level;
          base[level] = box * kLeaf;
          open[level] = near_boxes(level, base[level], low, high);
          continue;
        }
        if (box >= first && box <= last) continue;
        leaf = box;
      }
      visit_leaf(leaf);
    }
  }
};

// One warp the 32 queries of a leaf.
template <int kSlots>
__global__ void __launch_bounds__(kSearchThreads)
    search_leaves(const float4* point, const __grid_constant__ BoxLevels levels,
                  const __grid_constant__ KnnArguments a) {
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kSearchThreads + threadIdx.x;
  const std::int64_t leaf = position / kLeaf;
  if (leaf >= levels.count[0]) return;  // whole warps
  const bool exists = position < a.count;
  Search<kSlots> search{point, levels, point[position], {}};
  search.nearest.clear(a.k, exists && isfinite(search.query.x));
  search.run(leaf, a.k);
  if (!exists) return;
  const std::int64_t row = __float_as_int(search.query.w);
  Nearest<kSlots>& nearest = search.nearest;
  // Only points that are not finite can leave slots empty; they still name valid nodes.
#pragma unroll
  for (int j = 0; j < kSlots; ++j) {
    if (nearest.index[j] == INT_MAX) nearest.index[j] = static_cast<std::int32_t>((row + 1 + j) % a.count);
  }
  if (a.ascending) nearest.sort_by_index();
#pragma unroll
  for (int j = 0; j < kSlots; ++j) {
    const int rank = j - (kSlots - a.k);
    if (rank < 0) continue;
    a.neighbour[row * a.k + rank] = nearest.index[j];
    if (a.weight != nullptr) a.weight[row * a.k + rank] = 1.0f;
  }
  if (a.row_ptr != nullptr) {
    a.row_ptr[row] = row * a.k;
    if (row == a.count - 1) a.row_ptr[a.count] = a.count * a.k;
  }
}

template <int kSlots>
void launch_search(const KnnArguments& a, const Workspace& space, cudaStream_t stream) {
  const std::int64_t threads = static_cast<std::int64_t>(space.levels.count[0]) * kLeaf;
  search_leaves<kSlots>
      <<<static_cast<unsigned>((threads + kSearchThreads - 1) / kSearchThreads), kSearchThreads, 0, stream>>>(
          space.point, space.levels, a);
}

template <class Key, int kBits>
cudaError_t sort_points(const KnnArguments& a, const Workspace& space, cudaStream_t stream) {
  auto *key = reinterpret_cast<Key*>(space.key), *sorted = reinterpret_cast<Key*>(space.sorted_key);
  launch_morton_keys<Key, kBits>(a.coordinate, a.count, a.dimension, space.partial, key, space.index, stream);
  if (const cudaError_t status = cudaGetLastError()) return status;
  return SortPairs<Key>::run(key, space.index, a.count, 3 * kBits, sorted, space.sorted_index, space.sort,
                             space.sort_bytes, stream);
}

}  // namespace

std::size_t knn_workspace_bytes(std::int64_t count) {
  Workspace space{};
  return lay_out(nullptr, count, space);
}

cudaError_t nearest_neighbours(const KnnArguments& a, cudaStream_t stream) {
  Workspace space{};
  lay_out(static_cast<char*>(a.workspace), a.count, space);
  const cudaError_t sorted = a.count <= kMaxCoarse ? sort_points<std::uint32_t, kCoarseBits>(a, space, stream)
                                                   : sort_points<std::uint64_t, kFineBits>(a, space, stream);
  if (sorted != cudaSuccess) return sorted;
  make_leaves<<<static_cast<unsigned>((a.count + kLeafThreads - 1) / kLeafThreads), kLeafThreads, 0,
                stream>>>(a.coordinate, a.count, a.dimension, space.sorted_index, space.point, space.levels);
  for (int level = 2; level <= space.levels.top; ++level) {
    const std::int64_t threads = static_cast<std::int64_t>(space.levels.count[level]) * kLeaf;
    make_boxes<<<static_cast<unsigned>((threads + 255) / 256), 256, 0, stream>>>(space.levels, level);
  }
  if (a.k <= 4) {
    launch_search<4>(a, space, stream);
  } else if (a.k <= 8) {
    launch_search<8>(a, space, stream);
  } else if (a.k <= 16) {
    launch_search<16>(a, space, stream);
  } else if (a.k <= 32) {
    launch_search<32>(a, space, stream);
  } else {
    launch_search<64>(a, space, stream);
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
