#include "graph/cuda/neighbour_rows.h"

#include <climits>

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"

namespace topomask::cuda {

namespace {

constexpr int kThreads = 256;

// One warp a row: every entry counts those before it.
__global__ void __launch_bounds__(kThreads) sort_row(const UnsortedRows from, const SortedRows to) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarpSize;
  if (row >= from.num_rows) return;  // whole warps
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t begin = from.row_ptr[row], length = from.row_ptr[row + 1] - begin;
  const std::int64_t source = from.stride > 0 ? row * from.stride : begin;
  for (std::int64_t first = 0; first < length; first += kWarpSize) {
    const std::int64_t mine = first + lane;
    const std::int32_t col = mine < length ? from.col[source + mine] : INT_MAX;
    std::int64_t rank = 0;
    for (std::int64_t other = 0; other < length; other += kWarpSize) {
      const std::int32_t theirs = other + lane < length ? from.col[source + other + lane] : INT_MAX;
      const auto count = static_cast<int>(min(length - other, std::int64_t{kWarpSize}));
      for (int j = 0; j < count; ++j) {
        const std::int32_t that = __shfl_sync(~0u, theirs, j);
        rank += that < col || (that == col && other + j < mine);
      }
    }
    if (mine >= length) continue;
    to.col[begin + rank] = max(col, 0);
    if (to.weight != nullptr) to.weight[begin + rank] = 1.0f;
    if (to.value == nullptr) continue;
    if (from.is_double) {
      static_cast<double*>(to.value)[begin + rank] = static_cast<const double*>(from.value)[source + mine];
    } else {
      static_cast<float*>(to.value)[begin + rank] = static_cast<const float*>(from.value)[source + mine];
    }
  }
}

__device__ int found_in(const DirectedLists& lists, std::int64_t row) {
  return lists.num_found == nullptr ? lists.k : lists.num_found[row];
}
__device__ bool has(const DirectedLists& lists, std::int64_t row, std::int32_t wanted) {
  const int found = found_in(lists, row);
  for (int s = 0; s < found; ++s) {
    if (lists.index[row * lists.k + s] == wanted) return true;
  }
  return false;
}

// One thread per entry of a list.
__global__ void __launch_bounds__(kThreads) count_symmetric(const DirectedLists lists, std::int32_t* degree) {
  const std::int64_t entry = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = entry / lists.k;
  const int slot = static_cast<int>(entry % lists.k);
  if (row >= lists.num_rows) return;
  const int found = found_in(lists, row);
  if (slot == 0) atomicAdd(&degree[row], found);
  if (slot >= found) return;
  const std::int32_t other = lists.index[entry];
  if (!has(lists, other, static_cast<std::int32_t>(row))) atomicAdd(&degree[other], 1);
}

__global__ void __launch_bounds__(kThreads)
    fill_symmetric(const DirectedLists lists, const std::int64_t* row_ptr, std::int32_t* cursor,
                   std::int32_t* col) {
  const std::int64_t entry = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t row = entry / lists.k;
  const int slot = static_cast<int>(entry % lists.k);
  if (row >= lists.num_rows || slot >= found_in(lists, row)) return;
  const std::int32_t other = lists.index[entry];
  col[row_ptr[row] + slot] = other;
  if (has(lists, other, static_cast<std::int32_t>(row))) return;
  const std::int64_t behind = row_ptr[other] + found_in(lists, other);
  col[behind + atomicAdd(&cursor[other], 1)] = static_cast<std::int32_t>(row);
}

__global__ void copy_box(const __grid_constant__ BoxLengths lengths, int axes, double* box) {
  for (int a = static_cast<int>(threadIdx.x); a < axes; a += static_cast<int>(blockDim.x))
    box[a] = lengths.length[a];
}

}  // namespace

cudaError_t sort_rows(const UnsortedRows& from, const SortedRows& to, cudaStream_t stream) {
  if (from.num_rows == 0) return cudaSuccess;
  sort_row<<<blocks_for(from.num_rows * kWarpSize, kThreads), kThreads, 0, stream>>>(from, to);
  return cudaGetLastError();
}

cudaError_t symmetric_degrees(const DirectedLists& lists, std::int32_t* degree, cudaStream_t stream) {
  if (const cudaError_t status = cudaMemsetAsync(
          degree, 0, static_cast<std::size_t>(lists.num_rows) * sizeof(std::int32_t), stream)) {
    return status;
  }
  const std::int64_t entries = lists.num_rows * lists.k;
  if (entries == 0) return cudaSuccess;
  count_symmetric<<<blocks_for(entries, kThreads), kThreads, 0, stream>>>(lists, degree);
  return cudaGetLastError();
}

cudaError_t symmetric_entries(const DirectedLists& lists, const std::int64_t* row_ptr, std::int32_t* cursor,
                              std::int32_t* col, cudaStream_t stream) {
  if (const cudaError_t status = cudaMemsetAsync(
          cursor, 0, static_cast<std::size_t>(lists.num_rows) * sizeof(std::int32_t), stream)) {
    return status;
  }
  const std::int64_t entries = lists.num_rows * lists.k;
  if (entries == 0) return cudaSuccess;
  fill_symmetric<<<blocks_for(entries, kThreads), kThreads, 0, stream>>>(lists, row_ptr, cursor, col);
  return cudaGetLastError();
}

cudaError_t store_box(const BoxLengths& lengths, int axes, double* box, cudaStream_t stream) {
  copy_box<<<1, kMaxBoxAxes, 0, stream>>>(lengths, axes, box);
  return cudaGetLastError();
}

}  // namespace topomask::cuda
