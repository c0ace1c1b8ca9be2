// What the kernels of the `mask` engine share: work items, vectors of 16 bytes, sums over lanes.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "attention/cuda/row_attention.h"
#include "core/cuda/lanes.cuh"
#include "masks/cuda/device_item.cuh"

namespace topomask::row_attention {

// run(T{}) for the type of the rows.
template <class Run>
cudaError_t with_type(Real dtype, const Run& run) {
  switch (dtype) {
    case Real::float32:
      return run(float{});
    case Real::bfloat16:
      return run(__nv_bfloat16{});
    case Real::float16:
      return run(__half{});
    default:
      return run(double{});
  }
}

template <class T>
__device__ inline T* head_rows(const Rows4& rows, std::int64_t batch, std::int64_t head) {
  return static_cast<T*>(rows.data) + batch * rows.batch_step + head * rows.head_step;
}

// Numbers of type T as float, or as double where they are double.
template <class T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
__device__ inline RealOf<T> to_real(T x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __half2float(x);
  } else {
    return x;
  }
}

template <class T>
__device__ inline T from_real(RealOf<T> x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(x);
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return x;
  }
}

// max(x, 0), where NaN stays NaN as in torch: a lost one would let training go on with garbage.
__device__ inline float relu(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline double relu(double x) {
  return x < 0 ? 0 : x;
}

// 1 / D_i, or 0 for a guarded row. NaN is not guarded.
template <class R>
__device__ inline R inverse_of(R normaliser, R guard) {
  return abs(normaliser) <= guard ? R{0} : 1 / normaliser;
}

// Softmax runs over entries with M_ij != 0, so that a masked-out giant cannot underflow the rest. What is
// subtracted from exponents: their maximum, or 0 where there are none.
template <class R>
__device__ inline R shift_of(R row_max) {
  return row_max == -INFINITY ? R{0} : row_max;
}

// exp(x / 2), kept finite. The gradient of M at a zero takes the factor exp(x) of a score that may be far
// above the maximum of its row: multiplied in two halves, it overflows only where the gradient does.
__device__ inline float half_exponential(float x) {
  return expf(x > 176.0f ? 88.0f : x / 2);  // NaN stays NaN
}
__device__ inline double half_exponential(double x) {
  return exp(x > 1418.0 ? 709.0 : x / 2);
}

// Sixteen bytes of a row.
template <class T>
struct Vector;

template <>
struct Vector<float> {
  static constexpr int kWidth = 4;
  __device__ static uint4 relu(uint4 raw) {
    const auto positive = [](unsigned x) { return __float_as_uint(row_attention::relu(__uint_as_float(x))); };
    return {positive(raw.x), positive(raw.y), positive(raw.z), positive(raw.w)};
  }
  __device__ static void unpack(uint4 raw, float (&x)[kWidth]) {
    x[0] = __uint_as_float(raw.x);
    x[1] = __uint_as_float(raw.y);
    x[2] = __uint_as_float(raw.z);
    x[3] = __uint_as_float(raw.w);
  }
  __device__ static uint4 pack(const float (&x)[kWidth]) {
    return {__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3])};
  }
};

// bfloat16 and float16, two to a word.
template <class T>
struct Vector {
  static constexpr int kWidth = 8;
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

  __device__ static unsigned bits(Pair pair) { return *reinterpret_cast<const unsigned*>(&pair); }
  __device__ static Pair pair_of(unsigned word) { return *reinterpret_cast<const Pair*>(&word); }
  __device__ static uint4 relu(uint4 raw) {
    const Pair zero = pair_of(0);
    const auto positive = [&](unsigned word) { return bits(__hmax2_nan(pair_of(word), zero)); };
    return {positive(raw.x), positive(raw.y), positive(raw.z), positive(raw.w)};
  }
  __device__ static void unpack(uint4 raw, float (&x)[kWidth]) {
    const unsigned word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, __half>) {
        const float2 both = __half22float2(pair_of(word[i]));
        x[2 * i] = both.x;
        x[2 * i + 1] = both.y;
      } else {  // a bfloat16 is the upper half of a float
        x[2 * i] = __uint_as_float(word[i] << 16);
        x[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
      }
    }
  }
  __device__ static uint4 pack(const float (&x)[kWidth]) {
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, __half>) {
        word[i] = bits(__floats2half2_rn(x[2 * i], x[2 * i + 1]));
      } else {
        word[i] = bits(__floats2bfloat162_rn(x[2 * i], x[2 * i + 1]));
      }
    }
    return {word[0], word[1], word[2], word[3]};
  }
};

// Sums kCount numbers over kLanes lanes at once: lane l returns the sum of number l / (kLanes / kCount).
// Every exchange halves what a lane holds, so that kCount sums take kCount - 1 exchanges and not kCount
// log2(kLanes).
template <int kLanes, int kCount>
__device__ inline float transposed_sum(float (&x)[kCount], int lane) {
  int offset = kLanes / 2;
#pragma unroll
  for (int held = kCount / 2; held >= 1; held /= 2) {
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const float given = upper ? x[i] : x[i + held];
      const float kept = upper ? x[i + held] : x[i];
      x[i] = kept + __shfl_xor_sync(0xffffffffu, given, offset);
    }
    offset /= 2;
  }
  return sum_lanes<kLanes / kCount>(x[0]);
}

// Where one pair's segments leave what they found: [segment, width].
template <class R>
__device__ inline R* segment_row_of(void* workspace, const DeviceRows& rows, std::int64_t pair,
                                    std::int64_t segment, std::int64_t width) {
  return static_cast<R*>(workspace) + (pair * rows.num_segments + segment) * width;
}

}  // namespace topomask::row_attention
