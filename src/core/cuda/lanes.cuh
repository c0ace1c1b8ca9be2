// Sums and extremes over the lanes of a warp. All 32 lanes must call them together.
#pragma once

namespace topomask {

constexpr int kWarpSize = 32;

// Over groups of kLanes lanes, in all of them; over every kStep-th lane of a group only.
template <int kLanes = kWarpSize, int kStep = 1, class R>
__device__ inline R sum_lanes(R x) {
#pragma unroll
  for (int offset = kLanes / 2; offset >= kStep; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// Over the lanes up to this one, itself included.
template <class R>
__device__ inline R running_sum_of_lanes(R x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int offset = 1; offset < kWarpSize; offset *= 2) {
    const R left = __shfl_up_sync(~0u, x, offset);
    if (lane >= offset) x += left;
  }
  return x;
}

// Of floating-point numbers NaN is left out, as fmin and fmax do.
template <int kLanes = kWarpSize, class R>
__device__ inline R min_lanes(R x) {
#pragma unroll
  for (int offset = kLanes / 2; offset >= 1; offset /= 2) x = min(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}
template <int kLanes = kWarpSize, class R>
__device__ inline R max_lanes(R x) {
#pragma unroll
  for (int offset = kLanes / 2; offset >= 1; offset /= 2) x = max(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

}  // namespace topomask
