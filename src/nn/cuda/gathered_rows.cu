#include "nn/cuda/gathered_rows.h"

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"
#include "nn/cuda/quads.cuh"

namespace topomask {

namespace {

constexpr int kGatherThreads = 256, kChannelsALane = 4;

// One warp a row. Sums are float32.
template <class T>
__global__ void __launch_bounds__(kGatherThreads) sum_by_target(const __grid_constant__ RowsByTarget r) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kGatherThreads + threadIdx.x) / kWarpSize;
  if (row >= r.rows) return;  // whole warps
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const T* const x = static_cast<const T*>(r.x);
  const std::int64_t begin = r.ptr[row], end = r.ptr[row + 1];
  for (int first = lane; first < r.channels; first += kWarpSize * kChannelsALane) {
    float sum[kChannelsALane] = {};
    for (std::int64_t e = begin; e < end; ++e) {
      const T* const from = x + std::int64_t{r.entry[e]} * r.channels;
#pragma unroll
      for (int i = 0; i < kChannelsALane; ++i) {
        const int c = first + i * kWarpSize;
        if (c < r.channels) sum[i] += static_cast<float>(from[c]);
      }
    }
#pragma unroll
    for (int i = 0; i < kChannelsALane; ++i) {
      const int c = first + i * kWarpSize;
      if (c < r.channels) static_cast<T*>(r.sum)[row * r.channels + c] = static_cast<T>(sum[i]);
    }
  }
}

}  // namespace

cudaError_t sum_rows_by_target(const RowsByTarget& r, cudaStream_t stream) {
  if (r.rows == 0) return cudaSuccess;
  return layers::with_type(r.type, [&](auto type) {
    sum_by_target<decltype(type)>
        <<<blocks_for(r.rows * kWarpSize, kGatherThreads), kGatherThreads, 0, stream>>>(r);
    return cudaGetLastError();
  });
}

}  // namespace topomask
