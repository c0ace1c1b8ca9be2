#include "nn/cuda/row_sums.h"

#include "nn/cuda/quads.cuh"

namespace topomask {

using namespace layers;

namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kChannels = 128;  // of a block: four a lane

__device__ inline float gelu(float x) {
  return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
}
__device__ inline float gelu_slope(float x) {
  const float density = 0.39894228040143268f * __expf(-0.5f * x * x);
  return fmaf(x, density, 0.5f * (1 + erff(x * 0.70710678118654752f)));
}

// Calls at(row, channel) for the quads of this block's channels and slice of rows, and writes the sum of what
// it returns to slices[blockIdx.y].
template <class At>
__device__ void sum_slice(std::int64_t rows, int channels, float* slices, const At& at) {
  __shared__ float4 shared[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int c = blockIdx.x * kChannels + lane * 4;
  float4 sum = {};
  if (c < channels) {
#pragma unroll 4
    for (std::int64_t row = blockIdx.y * std::int64_t{kWarps} + warp; row < rows;
         row += gridDim.y * std::int64_t{kWarps})
      sum = sum + at(row, c);
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= channels) return;
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum = sum + shared[w][lane];
  store_quad(slices + std::int64_t{blockIdx.y} * channels + c, sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads) row_sums_kernel(const __grid_constant__ RowSums s) {
  const T* x = static_cast<const T*>(s.x);
  sum_slice(s.rows, s.channels, s.workspace,
            [&](std::int64_t row, int c) { return load_quad(x + row * s.channels + c); });
}

template <class T>
__global__ void __launch_bounds__(kThreads) gelu_backward_kernel(const __grid_constant__ BiasGeluBackward g) {
  const int c = blockIdx.x * kChannels + threadIdx.x % 32 * 4;
  const float4 bias = c < g.channels ? load_quad(g.bias + c) : float4{};
  const T* x = static_cast<const T*>(g.x);
  const T* grad_y = static_cast<const T*>(g.grad_y);
  T* __restrict__ grad_x = static_cast<T*>(g.grad_x);
  sum_slice(g.rows, g.channels, g.workspace, [&](std::int64_t row, int column) {
    const std::int64_t at = row * g.channels + column;
    const float4 z = load_quad(x + at) + bias, grad = load_quad(grad_y + at);
    const float4 result = grad * float4{gelu_slope(z.x), gelu_slope(z.y), gelu_slope(z.z), gelu_slope(z.w)};
    store_quad(grad_x + at, result);
    return result;
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) gelu_forward_kernel(const __grid_constant__ BiasGelu g) {
  const std::int64_t quads = g.rows * g.channels / 4, quads_a_row = g.channels / 4;
  for (std::int64_t quad = blockIdx.x * std::int64_t{kThreads} + threadIdx.x; quad < quads;
       quad += gridDim.x * std::int64_t{kThreads}) {
    const float4 z =
        load_quad(static_cast<const T*>(g.x) + quad * 4) + load_quad(g.bias + quad % quads_a_row * 4);
    store_quad(static_cast<T*>(g.y) + quad * 4, {gelu(z.x), gelu(z.y), gelu(z.z), gelu(z.w)});
  }
}

// Eight threads share the slices of a channel.
__global__ void __launch_bounds__(kThreads)
    sum_slices_kernel(const float* slices, int channels, float* result) {
  __shared__ float shared[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
  const float* from = slices + blockIdx.y * std::int64_t{kRowSlices} * channels + c;
  float sum = 0;
  if (c < channels) {
#pragma unroll 8
    for (int s = warp; s < kRowSlices; s += kWarps) sum += from[s * std::int64_t{channels}];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= channels) return;
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += shared[w][lane];
  result[blockIdx.y * std::int64_t{channels} + c] = sum;
}

dim3 slice_grid(int channels) {
  return dim3((channels + kChannels - 1) / kChannels, kRowSlices);
}

}  // namespace

cudaError_t sum_slices(const float* slices, int count, int channels, float* result, cudaStream_t stream) {
  sum_slices_kernel<<<dim3((channels + 31) / 32, count), kThreads, 0, stream>>>(slices, channels, result);
  return cudaGetLastError();
}

cudaError_t row_sums(const RowSums& sums, cudaStream_t stream) {
  return with_type(sums.type, [&](auto zero) {
    row_sums_kernel<decltype(zero)><<<slice_grid(sums.channels), kThreads, 0, stream>>>(sums);
    const cudaError_t status = cudaGetLastError();
    return status != cudaSuccess ? status : sum_slices(sums.workspace, 1, sums.channels, sums.sum, stream);
  });
}

cudaError_t bias_gelu_forward(const BiasGelu& g, cudaStream_t stream) {
  return with_type(g.type, [&](auto zero) {
    const std::int64_t wanted = (g.rows * g.channels / 4 + kThreads - 1) / kThreads;
    const auto blocks = static_cast<unsigned>(wanted < (1 << 20) ? wanted : 1 << 20);
    gelu_forward_kernel<decltype(zero)><<<blocks, kThreads, 0, stream>>>(g);
    return cudaGetLastError();
  });
}

cudaError_t bias_gelu_backward(const BiasGeluBackward& g, cudaStream_t stream) {
  return with_type(g.type, [&](auto zero) {
    gelu_backward_kernel<decltype(zero)><<<slice_grid(g.channels), kThreads, 0, stream>>>(g);
    const cudaError_t status = cudaGetLastError();
    return status != cudaSuccess ? status : sum_slices(g.workspace, 1, g.channels, g.grad_bias, stream);
  });
}

}  // namespace topomask
