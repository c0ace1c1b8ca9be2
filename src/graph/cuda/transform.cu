#include "graph/cuda/transform.h"

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"

namespace topomask::cuda {

namespace {

constexpr int kThreads = 256, kLanes = 8;  // lanes a row: local graphs have about as many entries in one

struct RowLane {
  std::int64_t row;
  int lane;
};
__device__ RowLane row_lane() {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  return {thread / kLanes, static_cast<int>(thread % kLanes)};
}

__global__ void write_entry_rows(const std::int64_t* row_ptr, std::int64_t num_rows, std::int32_t* out) {
  const auto [row, lane] = row_lane();
  if (row >= num_rows) return;
  const std::int64_t end = row_ptr[row + 1];
  for (std::int64_t e = row_ptr[row] + lane; e < end; e += kLanes) out[e] = static_cast<std::int32_t>(row);
}

__global__ void write_entry_lists(const __grid_constant__ EntryLists lists) {
  const auto write = [&](std::int64_t e, std::int32_t row, bool in_a_row) {
    lists.row[e] = row;
    if (lists.key != nullptr) lists.key[e] = in_a_row ? lists.col[e] : lists.behind;
    if (lists.position != nullptr) lists.position[e] = static_cast<std::int32_t>(e);
  };
  const auto [row, lane] = row_lane();
  if (row < lists.num_rows) {
    const std::int64_t end = lists.row_ptr[row + 1];
    for (std::int64_t e = lists.row_ptr[row] + lane; e < end; e += kLanes)
      write(e, static_cast<std::int32_t>(row), true);
  }
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t e = lists.row_ptr[lists.num_rows] + row * kLanes + lane; e < lists.entries; e += threads)
    write(e, 0, false);
}

__global__ void write_gathered(const std::int32_t* row, const std::int32_t* entry, std::int64_t entries,
                               std::int32_t* sorted_row, std::int64_t* wide_entry) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= entries) return;
  const std::int32_t e = entry[i];
  sorted_row[i] = row[e];
  if (wide_entry != nullptr) wide_entry[i] = e;
}

// Each entry that begins a row writes where the rows since the entry before it begin.
__global__ void write_offsets(const std::uint32_t* sorted_row, std::int64_t entries, std::int64_t num_rows,
                              std::int64_t* row_ptr) {
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e > entries) return;
  const std::int64_t first = e == 0 ? 0 : std::int64_t{sorted_row[e - 1]} + 1;
  const std::int64_t last = e == entries ? num_rows : std::int64_t{sorted_row[e]};
  for (std::int64_t row = first; row <= last; ++row) row_ptr[row] = e;
}

// The sum of a row's |weights|, in all of its lanes; 0 beyond the last row.
__device__ double row_sum(const float* weight, std::int64_t begin, std::int64_t end, int lane) {
  double sum = 0;
  for (std::int64_t e = begin + lane; e < end; e += kLanes) sum += fabs(static_cast<double>(weight[e]));
  return sum_lanes<kLanes>(sum);
}

__global__ void write_inverse_roots(const std::int64_t* row_ptr, const float* weight, std::int64_t num_rows,
                                    double* inverse) {
  const auto [row, lane] = row_lane();
  const bool valid = row < num_rows;
  const double sum = row_sum(weight, valid ? row_ptr[row] : 0, valid ? row_ptr[row + 1] : 0, lane);
  if (valid && lane == 0) inverse[row] = sum > 0 ? 1 / sqrt(sum) : 0;
}

__global__ void write_stochastic(const std::int64_t* row_ptr, const float* weight, std::int64_t num_rows,
                                 float* scaled) {
  const auto [row, lane] = row_lane();
  const bool valid = row < num_rows;
  const std::int64_t begin = valid ? row_ptr[row] : 0, end = valid ? row_ptr[row + 1] : 0;
  const double sum = row_sum(weight, begin, end, lane), inverse = sum > 0 ? 1 / sum : 0;
  for (std::int64_t e = begin + lane; e < end; e += kLanes)
    scaled[e] = static_cast<float>(static_cast<double>(weight[e]) * inverse);
}

__global__ void write_scaled(const std::int64_t* row_ptr, const std::int32_t* col, const float* weight,
                             std::int64_t num_rows, const double* left, const double* right, float* scaled) {
  const auto [row, lane] = row_lane();
  if (row >= num_rows) return;
  const double here = left != nullptr ? left[row] : 1;
  const std::int64_t end = row_ptr[row + 1];
  for (std::int64_t e = row_ptr[row] + lane; e < end; e += kLanes) {
    const double there = right != nullptr ? right[col[e]] : 1;
    scaled[e] = static_cast<float>(static_cast<double>(weight[e]) * (here * there));
  }
}

}  // namespace

cudaError_t entry_rows(const std::int64_t* row_ptr, std::int64_t num_rows, std::int32_t* row,
                       cudaStream_t stream) {
  if (num_rows == 0) return cudaSuccess;
  write_entry_rows<<<blocks_for(num_rows * kLanes, kThreads), kThreads, 0, stream>>>(row_ptr, num_rows, row);
  return cudaGetLastError();
}

cudaError_t list_entries(const EntryLists& lists, cudaStream_t stream) {
  if (lists.entries == 0) return cudaSuccess;
  write_entry_lists<<<blocks_for(lists.num_rows * kLanes + 1, kThreads), kThreads, 0, stream>>>(lists);
  return cudaGetLastError();
}

cudaError_t gather_rows(const std::int32_t* row, const std::int32_t* entry, std::int64_t entries,
                        std::int32_t* sorted_row, std::int64_t* wide_entry, cudaStream_t stream) {
  if (entries == 0) return cudaSuccess;
  write_gathered<<<blocks_for(entries, kThreads), kThreads, 0, stream>>>(row, entry, entries, sorted_row,
                                                                         wide_entry);
  return cudaGetLastError();
}

cudaError_t offsets_of_sorted(const std::uint32_t* sorted_row, std::int64_t entries, std::int64_t num_rows,
                              std::int64_t* row_ptr, cudaStream_t stream) {
  write_offsets<<<blocks_for(entries + 1, kThreads), kThreads, 0, stream>>>(sorted_row, entries, num_rows,
                                                                            row_ptr);
  return cudaGetLastError();
}

cudaError_t inverse_root_sums(const std::int64_t* row_ptr, const float* weight, std::int64_t num_rows,
                              double* inverse, cudaStream_t stream) {
  if (num_rows == 0) return cudaSuccess;
  write_inverse_roots<<<blocks_for(num_rows * kLanes, kThreads), kThreads, 0, stream>>>(row_ptr, weight,
                                                                                        num_rows, inverse);
  return cudaGetLastError();
}

cudaError_t stochastic_rows(const std::int64_t* row_ptr, const float* weight, std::int64_t num_rows,
                            float* scaled, cudaStream_t stream) {
  if (num_rows == 0) return cudaSuccess;
  write_stochastic<<<blocks_for(num_rows * kLanes, kThreads), kThreads, 0, stream>>>(row_ptr, weight,
                                                                                     num_rows, scaled);
  return cudaGetLastError();
}

cudaError_t scale_entries(const std::int64_t* row_ptr, const std::int32_t* col, const float* weight,
                          std::int64_t num_rows, const double* left, const double* right, float* scaled,
                          cudaStream_t stream) {
  if (num_rows == 0) return cudaSuccess;
  write_scaled<<<blocks_for(num_rows * kLanes, kThreads), kThreads, 0, stream>>>(
      row_ptr, col, weight, num_rows, left, right, scaled);
  return cudaGetLastError();
}

}  // namespace topomask::cuda
