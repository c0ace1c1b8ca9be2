#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"
#include "masks/cuda/look_up.h"

namespace topomask {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kRun = 8192;  // keys a warp sums

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_table(const std::uint8_t* key, std::int64_t count, const T* table, std::int64_t size, T* out) {
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t head = blockIdx.y;
  if (e < count) out[head * count + e] = table[head * size + key[e]];
}

// A warp a run. Every lane has a table of its own, so that no two add to one place.
template <class T>
__global__ void __launch_bounds__(kWarpSize)
    sum_run(const std::uint8_t* key, std::int64_t count, const T* grad_out, int size, double* partial) {
  extern __shared__ __align__(16) char shared[];
  T* sums = reinterpret_cast<T*>(shared);  // [size, kWarpSize]
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t run = blockIdx.x, head = blockIdx.y;
  const T* gradient = grad_out + head * count;
  for (int k = 0; k < size; ++k) sums[k * kWarpSize + lane] = 0;
  const std::int64_t end = count < (run + 1) * kRun ? count : (run + 1) * kRun;
#pragma unroll 4
  for (std::int64_t e = run * kRun + lane; e < end; e += kWarpSize) {
    sums[key[e] * kWarpSize + lane] += gradient[e];
  }
  __syncwarp();
  for (int k = lane; k < size; k += kWarpSize) {
    double sum = 0;
    // Begun at one's own bank, since all lanes begin at once: the order depends on k alone.
    for (int i = 0; i < kWarpSize; ++i) sum += sums[k * kWarpSize + (i + k) % kWarpSize];
    partial[(run * gridDim.y + head) * size + k] = sum;
  }
}

// A warp an element of the table.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_runs(const double* partial, std::int64_t runs, std::int64_t elements, T* grad_table) {
  const std::int64_t element = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (element >= elements) return;
  double sum = 0;
  for (std::int64_t run = lane; run < runs; run += kWarpSize) sum += partial[run * elements + element];
  sum = sum_lanes(sum);
  if (lane == 0) grad_table[element] = static_cast<T>(sum);
}

}  // namespace

template <class T>
cudaError_t look_up_on_device(const std::uint8_t* key, std::int64_t count, const T* table, std::int64_t heads,
                              std::int64_t size, T* out, cudaStream_t stream) {
  if (count * heads == 0) return cudaSuccess;
  const dim3 grid(blocks_for(count, kThreads), static_cast<unsigned>(heads));
  gather_table<<<grid, kThreads, 0, stream>>>(key, count, table, size, out);
  return cudaGetLastError();
}

std::int64_t look_up_runs(std::int64_t count) {
  return (count + kRun - 1) / kRun;
}

template <class T>
cudaError_t look_up_backward_on_device(const std::uint8_t* key, std::int64_t count, const T* grad_out,
                                       std::int64_t heads, std::int64_t size, double* partial, T* grad_table,
                                       cudaStream_t stream) {
  if (size * heads == 0) return cudaSuccess;
  const std::int64_t runs = look_up_runs(count);
  if (runs > 0) {
    const auto bytes = static_cast<int>(size * kWarpSize * static_cast<std::int64_t>(sizeof(T)));
    // Tables of float64 can exceed the 48 KiB that need no asking.
    if (const cudaError_t status =
            cudaFuncSetAttribute(sum_run<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
      return status;
    }
    const dim3 grid(static_cast<unsigned>(runs), static_cast<unsigned>(heads));
    sum_run<<<grid, kWarpSize, bytes, stream>>>(key, count, grad_out, static_cast<int>(size), partial);
  }
  add_runs<<<blocks_for(heads * size * kWarpSize, kThreads), kThreads, 0, stream>>>(partial, runs,
                                                                                    heads * size, grad_table);
  return cudaGetLastError();
}

#define TOPOMASK_INSTANTIATE(T)                                                                              \
  template cudaError_t look_up_on_device(const std::uint8_t*, std::int64_t, const T*, std::int64_t,          \
                                         std::int64_t, T*, cudaStream_t);                                    \
  template cudaError_t look_up_backward_on_device(const std::uint8_t*, std::int64_t, const T*, std::int64_t, \
                                                  std::int64_t, double*, T*, cudaStream_t)
TOPOMASK_INSTANTIATE(float);
TOPOMASK_INSTANTIATE(double);
#undef TOPOMASK_INSTANTIATE

}  // namespace topomask
