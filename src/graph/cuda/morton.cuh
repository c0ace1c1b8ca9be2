// Keys of points along a curve, from the box around them.
#pragma once

#include <cstdint>

#include "core/cuda/lanes.cuh"
#include "graph/cuda/knn.h"

namespace topomask::cuda {

constexpr int kFineBits = 21;  // an axis
constexpr int kKeyThreads = 256;

// partial[axis][block] holds lower corners, partial[3 + axis][block] upper ones; what is not finite is left
// out.
static __global__ void __launch_bounds__(kKeyThreads)
    partial_boxes(const float* coordinate, std::int64_t count, int dimension, float* partial,
                  std::int32_t* counters, int num_counters) {
  for (int c = static_cast<int>(blockIdx.x * kKeyThreads + threadIdx.x); c < num_counters;
       c += static_cast<int>(gridDim.x) * kKeyThreads) {
    counters[c] = 0;
  }
  __shared__ float of_warp[6][kKeyThreads / 32];
  const float infinity = __int_as_float(0x7F800000);
  float low[3] = {infinity, infinity, infinity}, high[3] = {-infinity, -infinity, -infinity};
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kKeyThreads) {
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      const float x = a < dimension ? coordinate[i * dimension + a] : 0;
      if (!isfinite(x)) continue;
      low[a] = fminf(low[a], x);
      high[a] = fmaxf(high[a], x);
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    low[a] = min_lanes(low[a]);
    high[a] = max_lanes(high[a]);
    if (lane == 0) {
      of_warp[a][warp] = low[a];
      of_warp[3 + a][warp] = high[a];
    }
  }
  __syncthreads();
  if (threadIdx.x >= 6) return;
  const int part = static_cast<int>(threadIdx.x);
  float best = of_warp[part][0];
  for (int w = 1; w < kKeyThreads / 32; ++w) {
    best = part < 3 ? fminf(best, of_warp[part][w]) : fmaxf(best, of_warp[part][w]);
  }
  partial[part * gridDim.x + blockIdx.x] = best;
}

// Spreads the low 21 bits to every third bit.
__device__ inline std::uint64_t spread_bits(std::uint64_t x) {
  x = (x | x << 32) & 0x001F00000000FFFFull;
  x = (x | x << 16) & 0x001F0000FF0000FFull;
  x = (x | x << 8) & 0x100F00F00F00F00Full;
  x = (x | x << 4) & 0x10C30C30C30C30C3ull;
  return (x | x << 2) & 0x1249249249249249ull;
}

// z_order: as morton_point_order on the CPU. hilbert: cells that follow each other share a face, so the boxes
// around runs of points are smaller.
enum class Curve { z_order, hilbert };

// The cell's coordinates to those whose interleaved bits are its place on the curve (J. Skilling, Programming
// the Hilbert curve, 2004).
template <int kBits>
__device__ inline void turn_to_hilbert(std::uint32_t (&x)[3]) {
#pragma unroll 1
  for (std::uint32_t bit = 1u << (kBits - 1); bit > 1; bit /= 2) {
    const std::uint32_t below = bit - 1;
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if ((x[a] & bit) != 0) {
        x[0] ^= below;
      } else {
        const std::uint32_t swapped = (x[0] ^ x[a]) & below;
        x[0] ^= swapped;
        x[a] ^= swapped;
      }
    }
  }
  x[1] ^= x[0];
  x[2] ^= x[1];
  std::uint32_t turned = 0;
#pragma unroll 1
  for (std::uint32_t bit = 1u << (kBits - 1); bit > 1; bit /= 2) turned ^= (x[2] & bit) != 0 ? bit - 1 : 0;
#pragma unroll
  for (std::uint32_t& axis : x) axis ^= turned;
}

// In double; kBits bits per axis. Every block puts the partial boxes together itself, with all its threads.
template <int kBits, Curve kCurve>
struct KeyScale {
  static constexpr double kCellsAnAxis = 1 << kBits;
  float low[3];
  double scale;
  int dimension;

  __device__ KeyScale(const float* partial, int dimension_) : dimension(dimension_) {
    __shared__ float corner[6];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    if (warp < 6) {
      float best = partial[warp * kBoxBlocks];
      for (int b = lane; b < kBoxBlocks; b += 32) {
        const float x = partial[warp * kBoxBlocks + b];
        best = warp < 3 ? fminf(best, x) : fmaxf(best, x);
      }
      best = warp < 3 ? min_lanes(best) : max_lanes(best);
      if (lane == 0) corner[warp] = best;
    }
    __syncthreads();
    double extent = 0;  // one scale for all axes
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      low[a] = corner[a];
      if (a < dimension) extent = fmax(extent, static_cast<double>(corner[3 + a]) - corner[a]);
    }
    scale = extent > 0 ? kCellsAnAxis / extent : 0;
  }

  __device__ std::uint64_t key(const float* at) const {
    std::uint32_t cell[3] = {};
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if (a >= dimension) break;
      const double x = fmin((at[a] - static_cast<double>(low[a])) * scale, kCellsAnAxis - 1);
      cell[a] = static_cast<std::uint32_t>(static_cast<std::uint64_t>(x) & ((1u << kBits) - 1));
    }
    if constexpr (kCurve == Curve::z_order)
      return spread_bits(cell[0]) | spread_bits(cell[1]) << 1 | spread_bits(cell[2]) << 2;
    turn_to_hilbert<kBits>(cell);
    return spread_bits(cell[0]) << 2 | spread_bits(cell[1]) << 1 | spread_bits(cell[2]);
  }
};

template <Curve kCurve>
__global__ void __launch_bounds__(kKeyThreads)
    point_keys(const float* coordinate, std::int64_t count, int dimension, const float* partial,
               std::uint64_t* key, std::int32_t* index) {
  const KeyScale<kFineBits, kCurve> scale(partial, dimension);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x;
  if (i >= count) return;
  key[i] = scale.key(coordinate + i * dimension);
  index[i] = static_cast<std::int32_t>(i);
}

template <Curve kCurve>
void launch_keys(const float* coordinate, std::int64_t count, int dimension, float* partial,
                 std::uint64_t* key, std::int32_t* index, cudaStream_t stream) {
  partial_boxes<<<kBoxBlocks, kKeyThreads, 0, stream>>>(coordinate, count, dimension, partial, nullptr, 0);
  point_keys<kCurve>
      <<<static_cast<unsigned>((count + kKeyThreads - 1) / kKeyThreads), kKeyThreads, 0, stream>>>(
          coordinate, count, dimension, partial, key, index);
}

}  // namespace topomask::cuda
