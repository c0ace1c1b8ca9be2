// Four neighbouring numbers of a row as floats, whatever they are stored as.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "nn/cuda/layer_type.h"

namespace topomask::layers {

__device__ inline float4 load_quad(const float* from) {
  return __ldg(reinterpret_cast<const float4*>(from));
}
__device__ inline float4 load_quad(const __nv_bfloat16* from) {
  const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
  return {__uint_as_float(x.x << 16), __uint_as_float(x.x & 0xffff0000u), __uint_as_float(x.y << 16),
          __uint_as_float(x.y & 0xffff0000u)};
}
__device__ inline float4 load_quad(const __half* from) {
  const uint2 x = __ldg(reinterpret_cast<const uint2*>(from));
  const float2 low = __half22float2(reinterpret_cast<const __half2&>(x.x)),
               high = __half22float2(reinterpret_cast<const __half2&>(x.y));
  return {low.x, low.y, high.x, high.y};
}

__device__ inline void store_quad(float* to, const float4& x) {
  *reinterpret_cast<float4*>(to) = x;
}
__device__ inline void store_quad(__nv_bfloat16* to, const float4& x) {
  const __nv_bfloat162 low = __float22bfloat162_rn({x.x, x.y}), high = __float22bfloat162_rn({x.z, x.w});
  *reinterpret_cast<uint2*>(to) = {reinterpret_cast<const std::uint32_t&>(low),
                                   reinterpret_cast<const std::uint32_t&>(high)};
}
__device__ inline void store_quad(__half* to, const float4& x) {
  const __half2 low = __float22half2_rn({x.x, x.y}), high = __float22half2_rn({x.z, x.w});
  *reinterpret_cast<uint2*>(to) = {reinterpret_cast<const std::uint32_t&>(low),
                                   reinterpret_cast<const std::uint32_t&>(high)};
}

__device__ inline float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ inline float4 operator-(const float4& a, float b) {
  return {a.x - b, a.y - b, a.z - b, a.w - b};
}
__device__ inline float4 operator*(const float4& a, const float4& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ inline float4 operator*(const float4& a, float b) {
  return {a.x * b, a.y * b, a.z * b, a.w * b};
}
__device__ inline float total(const float4& a) {
  return (a.x + a.y) + (a.z + a.w);
}

// Calls run(T{}) for the type of a layer's activations.
template <class Run>
cudaError_t with_type(LayerType type, const Run& run) {
  switch (type) {
    case LayerType::bfloat16:
      return run(__nv_bfloat16{});
    case LayerType::float16:
      return run(__half{});
    default:
      return run(float{});
  }
}

}  // namespace topomask::layers
