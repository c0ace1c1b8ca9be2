#include "masks/cuda/sparse_product.h"

#include <algorithm>

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"
#include "core/cuda/team.cuh"

namespace topomask::cuda {

namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarpSize;

// --- pattern
// ---------------------------------------------------------------------------------------------------------

constexpr int kMaxSortedPairs =
    1024;  // of a row that a warp sorts; beyond, a block marks columns in a bitmap
constexpr std::int64_t kLongBlocks = 264;
constexpr std::int64_t kMaxSharedBytes = 200 * 1024;

__device__ std::int64_t pairs_of(const SparseRows& query, const SparseRows& key_columns, std::int64_t row) {
  const int lane = WarpTeam().rank();
  std::int64_t pairs = 0;
  for (std::int64_t p = query.row_ptr[row] + lane; p < query.row_ptr[row + 1]; p += kWarpSize) {
    pairs += key_columns.row_ptr[query.col[p] + 1] - key_columns.row_ptr[query.col[p]];
  }
  return sum_lanes(pairs);
}

__global__ void __launch_bounds__(kThreads)
    pattern_of_short_rows(const __grid_constant__ ProductPatternArguments a) {
  __shared__ std::uint32_t columns[kWarps][kMaxSortedPairs];
  const WarpTeam team;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (r >= a.num_rows) return;
  const std::int64_t row = r * a.row_step;
  if (pairs_of(a.query, a.key_columns, row) > kMaxSortedPairs) {
    if (a.col == nullptr && team.rank() == 0)
      a.long_rows[atomicAdd(a.num_long, 1u)] = static_cast<std::int32_t>(r);
    return;
  }
  std::uint32_t* found = columns[warp];
  int pairs = 0;
  for (std::int64_t p = a.query.row_ptr[row]; p < a.query.row_ptr[row + 1]; ++p) {
    const std::int64_t first = a.key_columns.row_ptr[a.query.col[p]];
    const auto length = static_cast<int>(a.key_columns.row_ptr[a.query.col[p] + 1] - first);
    for (int t = team.rank(); t < length; t += kWarpSize) {
      found[pairs + t] = static_cast<std::uint32_t>(a.key_columns.col[first + t]);
    }
    pairs += length;
  }
  team.sync();
  team_sort(team, found, static_cast<float*>(nullptr), pairs);
  int entries = 0;
  for (int base = 0; base < pairs; base += kWarpSize) {
    const int i = base + team.rank();
    const bool is_new = i < pairs && (i == 0 || found[i] != found[i - 1]);
    int total;
    const int position = entries + team.exclusive_count(is_new, total);
    if (a.col != nullptr && is_new) a.col[a.row_ptr[r] + position] = static_cast<std::int32_t>(found[i]);
    entries += total;
  }
  if (a.col == nullptr && team.rank() == 0) a.count[r] = entries;
}

// One block a row: a bit for every column, read back between the first and the last that the row has. Blocks
// share the list of rows; each leaves its bitmap clear.
__global__ void __launch_bounds__(kThreads)
    pattern_of_long_rows(const __grid_constant__ ProductPatternArguments a, bool in_shared) {
  extern __shared__ unsigned shared_bitmap[];
  __shared__ int partial[kWarpSize];
  __shared__ unsigned low, high;  // words of the first and the last column
  const BlockTeam team{partial};
  const std::int64_t words = (a.query.num_rows + 31) / 32;
  unsigned* bitmap = in_shared ? shared_bitmap : a.bitmap + blockIdx.x * words;
  if (in_shared) {
    for (std::int64_t w = team.rank(); w < words; w += team.size()) bitmap[w] = 0;
    team.sync();
  }
  const int warp = team.rank() / kWarpSize, lane = team.rank() % kWarpSize;
  for (unsigned index = blockIdx.x; index < *a.num_long; index += gridDim.x) {
    const std::int64_t r = a.long_rows[index], row = r * a.row_step;
    if (team.rank() == 0) {
      low = ~0u;
      high = 0;
    }
    team.sync();
    unsigned own_low = ~0u, own_high = 0;
    for (std::int64_t p = a.query.row_ptr[row] + warp; p < a.query.row_ptr[row + 1]; p += kWarps) {
      const std::int64_t last = a.key_columns.row_ptr[a.query.col[p] + 1];
      for (std::int64_t t = a.key_columns.row_ptr[a.query.col[p]] + lane; t < last; t += kWarpSize) {
        const auto j = static_cast<unsigned>(a.key_columns.col[t]);
        atomicOr(&bitmap[j / 32], 1u << j % 32);
        own_low = min(own_low, j / 32);
        own_high = max(own_high, j / 32);
      }
    }
    own_low = __reduce_min_sync(~0u, own_low);
    own_high = __reduce_max_sync(~0u, own_high);
    if (lane == 0) {
      atomicMin(&low, own_low);
      atomicMax(&high, own_high);
    }
    team.sync();
    const std::int64_t first_word = low, end_word = std::int64_t{high} + 1;
    int entries = 0;
    for (std::int64_t base = first_word; base < end_word; base += team.size()) {
      const std::int64_t w = base + team.rank();
      unsigned bits = w < end_word ? bitmap[w] : 0;
      int total;
      int position = entries + team.exclusive_sum(__popc(bits), total);
      if (a.col != nullptr) {
        for (; bits != 0; bits &= bits - 1) {
          a.col[a.row_ptr[r] + position++] =
              static_cast<std::int32_t>(w * 32 + __ffs(static_cast<int>(bits)) - 1);
        }
      }
      if (w < end_word) bitmap[w] = 0;
      entries += total;
    }
    if (a.col == nullptr && team.rank() == 0) a.count[r] = entries;
    team.sync();
  }
}

// --- values
// ----------------------------------------------------------------------------------------------------------

constexpr int kMaxShortRow = 256;  // entries of a row of M that a warp keeps in shared memory

template <class T>
constexpr std::size_t row_bytes(int capacity, int heads_at_once) {
  return (static_cast<std::size_t>(capacity) * (4 + sizeof(T) * static_cast<std::size_t>(heads_at_once)) +
          15) /
         16 * 16;
}

// Lanes of a warp: kHeads heads of 32 / kHeads neighbouring pairs.
template <int kHeads>
struct HeadLanes {
  static constexpr int kPairs = kWarpSize / kHeads;
  int pair, head;
  bool valid;

  __device__ HeadLanes(std::int64_t first_head, std::int64_t heads) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    pair = lane / kHeads;
    head = lane % kHeads;
    valid = first_head + head < heads;
  }
};

template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads)
    values_of_short_rows(const __grid_constant__ ProductValuesArguments<T> a, int capacity) {
  extern __shared__ __align__(16) char shared[];
  const WarpTeam team;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + warp;
  if (row >= a.query.num_rows) return;
  const std::int64_t begin = a.product.row_ptr[row];
  const auto entries = static_cast<int>(a.product.row_ptr[row + 1] - begin);
  if (entries > capacity) return;
  const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.y) * kHeads;
  const HeadLanes<kHeads> lane(first_head, a.heads);
  char* memory = shared + warp * row_bytes<T>(capacity, kHeads);
  auto* sum = reinterpret_cast<T*>(memory);  // [entries, kHeads]
  auto* column = reinterpret_cast<std::int32_t*>(sum + capacity * kHeads);
  for (int s = team.rank(); s < entries; s += kWarpSize) column[s] = a.product.col[begin + s];
  for (int s = team.rank(); s < entries * kHeads; s += kWarpSize) sum[s] = 0;
  team.sync();
  const std::int64_t head = first_head + (lane.valid ? lane.head : 0);
  const std::int64_t end = a.query.row_ptr[row + 1];
  for (std::int64_t p = a.query.row_ptr[row]; p < end; ++p) {
    const T weight = a.query_value[p * a.heads + head];
    const std::int64_t last = a.key_columns.row_ptr[a.query.col[p] + 1];
    for (std::int64_t t = a.key_columns.row_ptr[a.query.col[p]] + lane.pair; t < last; t += lane.kPairs) {
      const T product = weight * a.key_value[a.key_columns.entry[t] * a.heads + head];
      // Rows of a column differ: no two pairs meet in one sum.
      sum[lower_bound(column, entries, a.key_columns.col[t]) * kHeads + lane.head] += product;
    }
    team.sync();
  }
  for (int h = 0; h < kHeads && first_head + h < a.heads; ++h) {
    T* out = a.value + (first_head + h) * a.nnz + begin;
    for (int s = team.rank(); s < entries; s += kWarpSize) out[s] = sum[s * kHeads + h];
  }
}

// Sums in place, in global memory. One block a row and head chunk.
template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads)
    values_of_long_rows(const __grid_constant__ ProductValuesArguments<T> a, int capacity) {
  const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.y) * kHeads;
  const HeadLanes<kHeads> lane(first_head, a.heads);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (std::int64_t row = blockIdx.x; row < a.query.num_rows; row += gridDim.x) {
    const std::int64_t begin = a.product.row_ptr[row];
    const auto entries = static_cast<int>(a.product.row_ptr[row + 1] - begin);
    if (entries <= capacity) continue;
    for (int h = 0; h < kHeads && first_head + h < a.heads; ++h) {
      T* out = a.value + (first_head + h) * a.nnz + begin;
      for (int s = static_cast<int>(threadIdx.x); s < entries; s += kThreads) out[s] = 0;
    }
    __syncthreads();
    const std::int64_t head = first_head + lane.head;
    for (std::int64_t p = a.query.row_ptr[row]; p < a.query.row_ptr[row + 1]; ++p) {
      if (lane.valid) {
        const T weight = a.query_value[p * a.heads + head];
        const std::int64_t last = a.key_columns.row_ptr[a.query.col[p] + 1];
        for (std::int64_t t = a.key_columns.row_ptr[a.query.col[p]] + warp * lane.kPairs + lane.pair;
             t < last; t += kWarps * lane.kPairs) {
          T* sum = a.value + head * a.nnz + begin;
          sum[lower_bound(a.product.col + begin, entries, a.key_columns.col[t])] +=
              weight * a.key_value[a.key_columns.entry[t] * a.heads + head];
        }
      }
      __syncthreads();
    }
  }
}

template <class T>
__device__ T grad_at(const ProductBackwardArguments<T>& a, std::int64_t position, std::int64_t head) {
  const std::int64_t entry = a.product.entry != nullptr ? a.product.entry[position] : position;
  return a.grad[entry * a.heads + head];
}

// The gradient of one entry p of the query, by one warp; `row_grad(j)` is that of (i, j) for the lane's head.
template <class T, int kHeads, class RowGrad>
__device__ void entry_backward(const ProductBackwardArguments<T>& a, std::int64_t p, std::int64_t first_head,
                               const HeadLanes<kHeads>& lane, const RowGrad& row_grad) {
  const std::int64_t head = first_head + (lane.valid ? lane.head : 0);
  T sum = 0;
  const std::int64_t last = a.key_columns.row_ptr[a.query.col[p] + 1];
  for (std::int64_t t = a.key_columns.row_ptr[a.query.col[p]] + lane.pair; t < last; t += lane.kPairs) {
    sum += row_grad(a.key_columns.col[t]) * a.key_value[a.key_columns.entry[t] * a.heads + head];
  }
  sum = sum_lanes<kWarpSize, kHeads>(sum);
  if (lane.pair == 0 && lane.valid) a.grad_query[p * a.heads + head] = sum;
}

template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads)
    backward_of_short_rows(const __grid_constant__ ProductBackwardArguments<T> a, int capacity) {
  extern __shared__ __align__(16) char shared[];
  const WarpTeam team;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize,
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + warp;
  if (row >= a.query.num_rows) return;
  const std::int64_t begin = a.product.row_ptr[row];
  const auto entries = static_cast<int>(a.product.row_ptr[row + 1] - begin);
  if (entries > capacity) return;
  const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.y) * kHeads;
  const HeadLanes<kHeads> lane(first_head, a.heads);
  char* memory = shared + warp * row_bytes<T>(capacity, kHeads);
  auto* grad = reinterpret_cast<T*>(memory);  // [entries, kHeads]
  auto* column = reinterpret_cast<std::int32_t*>(grad + capacity * kHeads);
  for (int s = team.rank(); s < entries; s += kWarpSize) column[s] = a.product.col[begin + s];
  for (int s = lane.pair; s < entries; s += lane.kPairs) {
    grad[s * kHeads + lane.head] = lane.valid ? grad_at(a, begin + s, first_head + lane.head) : T{0};
  }
  team.sync();
  for (std::int64_t p = a.query.row_ptr[row]; p < a.query.row_ptr[row + 1]; ++p) {
    entry_backward<T, kHeads>(a, p, first_head, lane, [&](std::int32_t j) {
      return grad[lower_bound(column, entries, j) * kHeads + lane.head];
    });
  }
}

template <class T, int kHeads>
__global__ void __launch_bounds__(kThreads)
    backward_of_long_rows(const __grid_constant__ ProductBackwardArguments<T> a, int capacity) {
  const std::int64_t first_head = static_cast<std::int64_t>(blockIdx.y) * kHeads;
  const HeadLanes<kHeads> lane(first_head, a.heads);
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (std::int64_t row = blockIdx.x; row < a.query.num_rows; row += gridDim.x) {
    const std::int64_t begin = a.product.row_ptr[row];
    const auto entries = static_cast<int>(a.product.row_ptr[row + 1] - begin);
    if (entries <= capacity) continue;
    const std::int64_t head = first_head + (lane.valid ? lane.head : 0);
    for (std::int64_t p = a.query.row_ptr[row] + warp; p < a.query.row_ptr[row + 1]; p += kWarps) {
      entry_backward<T, kHeads>(a, p, first_head, lane, [&](std::int32_t j) {
        return grad_at(a, begin + lower_bound(a.product.col + begin, entries, j), head);
      });
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_mirrored(const T* values, const std::int64_t* mirror,
                                                         std::int64_t numbers, std::int64_t heads, T* out) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < numbers) out[at] = values[at] + values[mirror[at / heads] * heads + at % heads];
}

template <class Kernel>
cudaError_t allow_shared_bytes(Kernel* kernel, std::size_t bytes) {
  if (bytes <= 40 * 1024) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

// Both kernels of a pair take (arguments, capacity): the first the rows up to it, the second the others.
template <class T, int kHeads, class Arguments, class Short, class Long>
cudaError_t launch_pair(const Arguments& a, Short* short_rows, Long* long_rows, cudaStream_t stream) {
  const std::int64_t rows = a.query.num_rows;
  if (rows == 0 || a.heads == 0) return cudaSuccess;
  const int capacity =
      next_power_of_two(static_cast<int>(std::clamp<std::int64_t>(a.longest_row, 32, kMaxShortRow)));
  const std::size_t bytes = row_bytes<T>(capacity, kHeads);
  // About what lets the registers fill the processor.
  const int warps = static_cast<int>(std::clamp<std::size_t>(48 * 1024 / bytes, 1, kWarps));
  const auto head_chunks = static_cast<unsigned>((a.heads + kHeads - 1) / kHeads);
  if (const cudaError_t status = allow_shared_bytes(short_rows, warps * bytes)) return status;
  const dim3 grid(static_cast<unsigned>((rows + warps - 1) / warps), head_chunks);
  short_rows<<<grid, warps * kWarpSize, warps * bytes, stream>>>(a, capacity);
  if (a.longest_row > capacity) {
    const dim3 blocks(static_cast<unsigned>(std::min<std::int64_t>(rows, 1024)), head_chunks);
    long_rows<<<blocks, kThreads, 0, stream>>>(a, capacity);
  }
  return cudaGetLastError();
}

template <class T, int kHeads>
cudaError_t launch_values(const ProductValuesArguments<T>& a, cudaStream_t stream) {
  return launch_pair<T, kHeads>(a, values_of_short_rows<T, kHeads>, values_of_long_rows<T, kHeads>, stream);
}

template <class T, int kHeads>
cudaError_t launch_backward(const ProductBackwardArguments<T>& a, cudaStream_t stream) {
  return launch_pair<T, kHeads>(a, backward_of_short_rows<T, kHeads>, backward_of_long_rows<T, kHeads>,
                                stream);
}

}  // namespace

LongRowBitmaps long_row_bitmaps(std::int64_t num_columns) {
  constexpr std::int64_t kMaxWords = std::int64_t{1} << 27;  // of all: large graphs have fewer blocks
  LongRowBitmaps bitmaps;
  bitmaps.words = (num_columns + 31) / 32;
  bitmaps.in_shared = 4 * bitmaps.words <= kMaxSharedBytes;
  bitmaps.blocks =
      bitmaps.in_shared ? kLongBlocks : std::clamp<std::int64_t>(kMaxWords / bitmaps.words, 1, kLongBlocks);
  return bitmaps;
}

cudaError_t product_pattern(const ProductPatternArguments& a, cudaStream_t stream) {
  if (a.num_rows == 0) return cudaSuccess;
  pattern_of_short_rows<<<static_cast<unsigned>((a.num_rows + kWarps - 1) / kWarps), kThreads, 0, stream>>>(
      a);
  const LongRowBitmaps bitmaps = long_row_bitmaps(a.query.num_rows);
  const std::size_t bytes = bitmaps.in_shared ? 4 * static_cast<std::size_t>(bitmaps.words) : 0;
  if (const cudaError_t status = allow_shared_bytes(pattern_of_long_rows, bytes)) return status;
  pattern_of_long_rows<<<static_cast<unsigned>(bitmaps.blocks), kThreads, bytes, stream>>>(a,
                                                                                           bitmaps.in_shared);
  return cudaGetLastError();
}

template <class T>
cudaError_t product_values(const ProductValuesArguments<T>& a, cudaStream_t stream) {
  if (a.heads == 1) return launch_values<T, 1>(a, stream);
  if (a.heads == 2) return launch_values<T, 2>(a, stream);
  if (a.heads <= 4) return launch_values<T, 4>(a, stream);
  return launch_values<T, 8>(a, stream);
}

template <class T>
cudaError_t product_backward(const ProductBackwardArguments<T>& a, cudaStream_t stream) {
  if (a.heads == 1) return launch_backward<T, 1>(a, stream);
  if (a.heads == 2) return launch_backward<T, 2>(a, stream);
  if (a.heads <= 4) return launch_backward<T, 4>(a, stream);
  return launch_backward<T, 8>(a, stream);
}

template <class T>
cudaError_t add_mirror_image(const T* values, const std::int64_t* mirror, std::int64_t nnz,
                             std::int64_t heads, T* out, cudaStream_t stream) {
  const std::int64_t numbers = nnz * heads;
  if (numbers == 0) return cudaSuccess;
  add_mirrored<<<blocks_for(numbers, kThreads), kThreads, 0, stream>>>(values, mirror, numbers, heads, out);
  return cudaGetLastError();
}

template cudaError_t product_values(const ProductValuesArguments<float>&, cudaStream_t);
template cudaError_t product_values(const ProductValuesArguments<double>&, cudaStream_t);
template cudaError_t product_backward(const ProductBackwardArguments<float>&, cudaStream_t);
template cudaError_t product_backward(const ProductBackwardArguments<double>&, cudaStream_t);
template cudaError_t add_mirror_image(const float*, const std::int64_t*, std::int64_t, std::int64_t, float*,
                                      cudaStream_t);
template cudaError_t add_mirror_image(const double*, const std::int64_t*, std::int64_t, std::int64_t, double*,
                                      cudaStream_t);

}  // namespace topomask::cuda
