#include "nn/cuda/row_sums.h"

#include "nn/cuda/quads.cuh"

namespace topomask {

using namespace layers;

namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;
constexpr int kChannels = 128;  // of a block: four a lane

// x times the normal distribution function, and its slope. erf by Abramowitz and Stegun 7.1.26, whose error
// of 1.5e-7 is that of float32; its exponential is the normal density as well.
struct Gelu {
  float value, slope;
  __device__ explicit Gelu(float x) {
    const float bell = __expf(-0.5f * x * x), t = __fdividef(1, fmaf(0.3275911f * 0.70710678f, fabsf(x), 1));
    const float tail =
        t * bell *
        fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f),
             0.254829592f);
    const float below = 0.5f * (x < 0 ? tail : 2 - tail);  // the distribution function
    value = x * below;
    slope = fmaf(x * 0.39894228f, bell, below);
  }
};

// The first channel of this thread's quads.
__device__ inline int own_channel() {
  return blockIdx.x * kChannels + threadIdx.x % 32 * 4;
}

// Calls use(row, load(row)) for this warp's part of the block's slice of rows; what the next row needs is on
// its way meanwhile.
template <class Load, class Use>
__device__ void for_own_rows(std::int64_t rows, const Load& load, const Use& use) {
  const std::int64_t step = gridDim.y * std::int64_t{kWarps};
  std::int64_t row = blockIdx.y * std::int64_t{kWarps} + threadIdx.x / 32;
  if (row >= rows) return;
  auto next = load(row);
#pragma unroll 2
  for (; row < rows; row += step) {
    const auto now = next;
    if (row + step < rows) next = load(row + step);
    use(row, now);
  }
}

// Writes the sum of the threads' quads over the rows of a block to slices[blockIdx.y].
__device__ void finish_slice(float4 sum, int channels, float* slices) {
  __shared__ float4 shared[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = own_channel();
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || c >= channels) return;
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum = sum + shared[w][lane];
  store_quad(slices + std::int64_t{blockIdx.y} * channels + c, sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads) row_sums_kernel(const __grid_constant__ RowSums s) {
  const int c = own_channel();
  const T* x = static_cast<const T*>(s.x) + c;
  float4 sum = {};
  if (c < s.channels) {
    for_own_rows(
        s.rows, [&](std::int64_t row) { return load_quad(x + row * s.channels); },
        [&](std::int64_t, const float4& quad) { sum = sum + quad; });
  }
  finish_slice(sum, s.channels, s.workspace);
}

template <class T>
__global__ void __launch_bounds__(kThreads) gelu_forward_kernel(const __grid_constant__ BiasGelu g) {
  const int c = own_channel();
  if (c >= g.channels) return;
  const float4 bias = load_quad(g.bias + c);
  const T* x = static_cast<const T*>(g.x) + c;
  T* y = static_cast<T*>(g.y) + c;
  for_own_rows(
      g.rows, [&](std::int64_t row) { return load_quad(x + row * g.channels); },
      [&](std::int64_t row, const float4& quad) {
        const float4 z = quad + bias;
        store_quad(y + row * g.channels,
                   {Gelu(z.x).value, Gelu(z.y).value, Gelu(z.z).value, Gelu(z.w).value});
      });
}

template <class T>
__global__ void __launch_bounds__(kThreads) gelu_backward_kernel(const __grid_constant__ BiasGeluBackward g) {
  struct Operands {
    float4 x, grad_y;
  };
  const int c = own_channel();
  const T* x = static_cast<const T*>(g.x) + c;
  const T* grad_y = static_cast<const T*>(g.grad_y) + c;
  T* grad_x = static_cast<T*>(g.grad_x) + c;
  float4 sum = {};
  if (c < g.channels) {
    const float4 bias = load_quad(g.bias + c);
    for_own_rows(
        g.rows,
        [&](std::int64_t row) {
          return Operands{load_quad(x + row * g.channels), load_quad(grad_y + row * g.channels)};
        },
        [&](std::int64_t row, const Operands& operands) {
          const float4 z = operands.x + bias;
          const float4 grad =
              operands.grad_y * float4{Gelu(z.x).slope, Gelu(z.y).slope, Gelu(z.z).slope, Gelu(z.w).slope};
          store_quad(grad_x + row * g.channels, grad);
          sum = sum + grad;
        });
  }
  finish_slice(sum, g.channels, g.workspace);
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
    gelu_forward_kernel<decltype(zero)><<<slice_grid(g.channels), kThreads, 0, stream>>>(g);
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
