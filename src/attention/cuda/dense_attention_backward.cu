// The backward pass for q, k and v: its kernels and their launch.
#include "attention/cuda/dense_attention_backward_block.cuh"
#include "attention/cuda/dense_attention_warpgroup.h"
#include "core/cuda/grid.h"

namespace topomask {

using namespace dense;

namespace {

template <class T, int kWidth, bool kSoftmax>
__global__ __launch_bounds__(BackwardShape<kWidth>::kThreads,
                             1) void backward_kernel(const __grid_constant__ DenseAttention a,
                                                     const __grid_constant__ DenseBackward b,
                                                     int blocks_of_keys) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<SharedMemory<T, kWidth>*>(memory);
  BackwardBlock<T, kWidth, kSoftmax>{{a, b, shared}}.run(blocks_of_keys);
}

// grad_q from the shares of all blocks of keys, in their order.
template <class T>
__global__ void sum_shares_kernel(DenseAttention a, DenseBackward b, int shares) {
  const std::int64_t rows = static_cast<std::int64_t>(a.batch) * a.heads * a.num_nodes,
                     pairs = rows * a.d / 2;
  for (std::int64_t p = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; p < pairs;
       p += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    float2 sum = {0, 0};
    for (int s = 0; s < shares; ++s) {
      const float2 share = reinterpret_cast<const float2*>(b.workspace)[s * pairs + p];
      sum.x += share.x;
      sum.y += share.y;
    }
    const std::int64_t row = p * 2 / a.d, pair = row / a.num_nodes, i = row % a.num_nodes;
    const int column = static_cast<int>(p * 2 % a.d), head = static_cast<int>(pair % a.heads),
              batch = static_cast<int>(pair / a.heads);
    Pair x = pack<T>(sum.x, sum.y);
    if (a.rule.is_relu()) {
      const T* raw = row_start<T>(a.q, a.q_strides, batch, head, i);
      const float2 y = Half<T>::unpack(*reinterpret_cast<const Pair*>(raw + column));
      x &= (y.x >= 0 ? 0xffffu : 0u) | (y.y >= 0 ? 0xffff0000u : 0u);
    }
    *reinterpret_cast<Pair*>(row_start<T>(b.grad_q, b.grad_q_strides, batch, head, i) + column) = x;
  }
}

int key_blocks(const DenseAttention& a, int keys) {
  return (a.num_nodes + keys - 1) / keys;
}

}  // namespace

std::int64_t dense_backward_workspace(const DenseAttention& a) {
  const int widest = a.d > a.d_v ? a.d : a.d_v;
  const int shares = key_blocks(a, widest > 64 ? BackwardShape<128>::kKeys : BackwardShape<64>::kKeys);
  if (shares <= 1) return 0;
  return static_cast<std::int64_t>(shares) * a.batch * a.heads * a.num_nodes * a.d * 4;
}

cudaError_t dense_attention_backward(const DenseAttention& a, const DenseBackward& b, cudaStream_t stream) {
#ifdef TOPOMASK_WARPGROUP
  if (warpgroup_backward_fits(a)) return warpgroup_backward(a, b, stream);
#endif
  const int multiprocessors = num_multiprocessors();
  return dispatch(a, [&]<class T, int kWidth, bool kSoftmax>() {
    const auto kernel = backward_kernel<T, kWidth, kSoftmax>;
    constexpr int kSharedBytes = sizeof(SharedMemory<T, kWidth>);
    cudaError_t result =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (result != cudaSuccess) return result;
    const int shares = key_blocks(a, BackwardShape<kWidth>::kKeys);
    const std::int64_t items = static_cast<std::int64_t>(a.batch) * a.heads * shares;
    const auto blocks = static_cast<unsigned>(items < multiprocessors ? items : multiprocessors);
    kernel<<<blocks, BackwardShape<kWidth>::kThreads, kSharedBytes, stream>>>(a, b, shares);
    result = cudaGetLastError();
    if (result != cudaSuccess || shares == 1) return result;
    sum_shares_kernel<T><<<multiprocessors * 8, 256, 0, stream>>>(a, b, shares);
    return cudaGetLastError();
  });
}

}  // namespace topomask
