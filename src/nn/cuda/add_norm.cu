// A warp holds a row, four channels a lane and quad; it walks over rows that are kRowSlices blocks apart, so
// that the gradients of the parameters stay in its registers until the end.
#include "nn/cuda/add_norm.h"

#include "core/cuda/lanes.cuh"
#include "nn/cuda/quads.cuh"
#include "nn/cuda/row_sums.h"

namespace topomask {

using namespace layers;

namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32;

template <class T, int kQuads>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ AddNormForward f) {
  const int lane = threadIdx.x % 32;
  for (std::int64_t row = blockIdx.x * std::int64_t{kWarps} + threadIdx.x / 32; row < f.rows;
       row += gridDim.x * std::int64_t{kWarps}) {
    const std::int64_t start = row * f.channels;
    float4 sum[kQuads];
    float mean = 0;
#pragma unroll
    for (int k = 0; k < kQuads; ++k) {
      const int c = (k * 32 + lane) * 4;
      sum[k] = {};
      if (c >= f.channels) continue;
      sum[k] = load_quad(f.x + start + c);
      if (f.branch != nullptr) {
        float4 branch = load_quad(static_cast<const T*>(f.branch) + start + c);
        if (f.bias != nullptr) branch = branch + load_quad(f.bias + c);
        sum[k] = sum[k] + branch;
        store_quad(f.sum + start + c, sum[k]);
      }
      mean += total(sum[k]);
    }
    mean = sum_lanes(mean) / f.channels;
    float variance = 0;
#pragma unroll
    for (int k = 0; k < kQuads; ++k) {
      if ((k * 32 + lane) * 4 >= f.channels) continue;
      const float4 centred = sum[k] - mean;
      variance += total(centred * centred);
    }
    const float inverse = rsqrtf(sum_lanes(variance) / f.channels + f.epsilon);
    if (lane == 0) {
      f.mean[row] = mean;
      f.inverse[row] = inverse;
    }
#pragma unroll
    for (int k = 0; k < kQuads; ++k) {
      const int c = (k * 32 + lane) * 4;
      if (c >= f.channels) continue;
      store_quad(static_cast<T*>(f.normed) + start + c,
                 (sum[k] - mean) * inverse * load_quad(f.weight + c) + load_quad(f.shift + c));
    }
  }
}

template <class T, int kQuads>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ AddNormBackward b) {
  __shared__ float4 shared[kWarps][kQuads * 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float4 grad_weight[kQuads] = {}, grad_shift[kQuads] = {}, grad_bias[kQuads] = {};
  for (std::int64_t row = blockIdx.x * std::int64_t{kWarps} + warp; row < b.rows;
       row += gridDim.x * std::int64_t{kWarps}) {
    const std::int64_t start = row * b.channels;
    const float mean = b.mean[row], inverse = b.inverse[row];
    float4 standard[kQuads], along[kQuads];  // (sum - mean) / stddev, and the loss's gradient for it
    float slope = 0, tilt = 0;
#pragma unroll
    for (int k = 0; k < kQuads; ++k) {
      const int c = (k * 32 + lane) * 4;
      standard[k] = along[k] = {};
      if (c >= b.channels) continue;
      standard[k] = (load_quad(b.sum + start + c) - mean) * inverse;
      const float4 grad = load_quad(static_cast<const T*>(b.grad_normed) + start + c);
      grad_weight[k] = grad_weight[k] + grad * standard[k];
      grad_shift[k] = grad_shift[k] + grad;
      along[k] = grad * load_quad(b.weight + c);
      slope += total(along[k]);
      tilt += total(along[k] * standard[k]);
    }
    slope = sum_lanes(slope) / b.channels;
    tilt = sum_lanes(tilt) / b.channels;
#pragma unroll
    for (int k = 0; k < kQuads; ++k) {
      const int c = (k * 32 + lane) * 4;
      if (c >= b.channels) continue;
      float4 grad = (along[k] - slope + standard[k] * -tilt) * inverse;
      if (b.grad_sum != nullptr) grad = grad + load_quad(b.grad_sum + start + c);
      grad_bias[k] = grad_bias[k] + grad;
      store_quad(b.grad_x + start + c, grad);
      if (b.grad_branch != nullptr) store_quad(static_cast<T*>(b.grad_branch) + start + c, grad);
    }
  }

  const auto finish = [&](const float4(&grad)[kQuads], int which) {
#pragma unroll
    for (int k = 0; k < kQuads; ++k) shared[warp][k * 32 + lane] = grad[k];
    __syncthreads();
    for (int quad = threadIdx.x; quad < b.channels / 4; quad += kThreads) {
      float4 sum = shared[0][quad];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) sum = sum + shared[w][quad];
      const std::int64_t slice = which * std::int64_t{gridDim.x} + blockIdx.x;
      store_quad(b.workspace + slice * b.channels + quad * 4, sum);
    }
    __syncthreads();
  };
  finish(grad_weight, 0);
  finish(grad_shift, 1);
  finish(grad_bias, 2);
}

// Calls run.template operator()<T, kQuads>() with at least as many quads as a lane's share of a row.
template <class Run>
cudaError_t dispatch(LayerType type, int channels, const Run& run) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    if (channels <= 128)
      run.template operator()<T, 1>();
    else if (channels <= 256)
      run.template operator()<T, 2>();
    else if (channels <= 512)
      run.template operator()<T, 4>();
    else
      run.template operator()<T, 8>();
    return cudaGetLastError();
  });
}

}  // namespace

cudaError_t add_norm_forward(const AddNormForward& f, cudaStream_t stream) {
  const std::int64_t wanted = (f.rows + kWarps - 1) / kWarps;
  const auto blocks = static_cast<unsigned>(wanted < (1 << 20) ? wanted : 1 << 20);
  return dispatch(f.type, f.channels, [&]<class T, int kQuads>() {
    forward_kernel<T, kQuads><<<blocks, kThreads, 0, stream>>>(f);
  });
}

cudaError_t add_norm_backward(const AddNormBackward& b, cudaStream_t stream) {
  const cudaError_t status = dispatch(b.type, b.channels, [&]<class T, int kQuads>() {
    backward_kernel<T, kQuads><<<kRowSlices, kThreads, 0, stream>>>(b);
  });
  if (status != cudaSuccess) return status;
  return sum_slices(b.workspace, 3, b.channels, b.parameters, stream);
}

}  // namespace topomask
