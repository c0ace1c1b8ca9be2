#include <algorithm>

#include "core/cuda/grid.h"
#include "masks/cuda/hypercube.h"

namespace topomask {

namespace {

constexpr int kThreads = 256, kMaxBits = 4;

// Mixes bits first_bit to first_bit + kBits - 1: a thread holds the 2^kBits rows that differ in them, of one
// column.
template <class T, int kBits>
__global__ void __launch_bounds__(kThreads) mix_bits(int dimension, int first_bit, const T* t,
                                                     std::int64_t columns, std::int64_t threads, T* values) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread >= threads) return;
  constexpr int kRows = 1 << kBits;
  const std::int64_t column = thread % columns, group = thread / columns;  // of rows, over all heads
  const std::int64_t head = group >> (dimension - kBits);
  const std::int64_t step = std::int64_t{1} << first_bit;
  const std::int64_t first_row = (group & (step - 1)) | ((group >> first_bit) << (first_bit + kBits));
  T* rows = values + first_row * columns + column;
  const T q = -expm1(-2 * t[head]) / 2, p = 1 - q;  // expm1 keeps q exact for small t
  T x[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) x[i] = rows[i * step * columns];
#pragma unroll
  for (int bit = 0; bit < kBits; ++bit) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (i & (1 << bit)) continue;
      const T low = x[i], high = x[i | (1 << bit)];
      x[i] = p * low + q * high;
      x[i | (1 << bit)] = q * low + p * high;
    }
  }
#pragma unroll
  for (int i = 0; i < kRows; ++i) rows[i * step * columns] = x[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    laplacian(int dimension, std::int64_t columns, std::int64_t threads, const T* z, T* out) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (thread >= threads) return;
  const std::int64_t column = thread % columns, row = thread / columns;
  T sum = 0;
  for (int bit = 0; bit < dimension; ++bit)
    sum += z[thread] - z[(row ^ (std::int64_t{1} << bit)) * columns + column];
  out[thread] = sum;
}

}  // namespace

template <class T>
cudaError_t hypercube_heat_on_device(int dimension, const T* t, std::int64_t heads, std::int64_t columns,
                                     T* values, cudaStream_t stream) {
  const std::int64_t numbers = (heads * columns) << dimension;
  if (numbers == 0) return cudaSuccess;
  for (int bit = 0; bit < dimension; bit += kMaxBits) {
    const int bits = std::min(kMaxBits, dimension - bit);
    const std::int64_t threads = numbers >> bits;
    const unsigned blocks = blocks_for(threads, kThreads);
    switch (bits) {
      case 1:
        mix_bits<T, 1><<<blocks, kThreads, 0, stream>>>(dimension, bit, t, columns, threads, values);
        break;
      case 2:
        mix_bits<T, 2><<<blocks, kThreads, 0, stream>>>(dimension, bit, t, columns, threads, values);
        break;
      case 3:
        mix_bits<T, 3><<<blocks, kThreads, 0, stream>>>(dimension, bit, t, columns, threads, values);
        break;
      default:
        mix_bits<T, 4><<<blocks, kThreads, 0, stream>>>(dimension, bit, t, columns, threads, values);
        break;
    }
  }
  return cudaGetLastError();
}

template <class T>
cudaError_t hypercube_laplacian_on_device(int dimension, std::int64_t heads, std::int64_t columns, const T* z,
                                          T* out, cudaStream_t stream) {
  const std::int64_t threads = (heads * columns) << dimension;
  if (threads == 0) return cudaSuccess;
  laplacian<T><<<blocks_for(threads, kThreads), kThreads, 0, stream>>>(dimension, columns, threads, z, out);
  return cudaGetLastError();
}

#define TOPOMASK_INSTANTIATE(T)                                                                     \
  template cudaError_t hypercube_heat_on_device(int, const T*, std::int64_t, std::int64_t, T*,      \
                                                cudaStream_t);                                      \
  template cudaError_t hypercube_laplacian_on_device(int, std::int64_t, std::int64_t, const T*, T*, \
                                                     cudaStream_t)
TOPOMASK_INSTANTIATE(float);
TOPOMASK_INSTANTIATE(double);
#undef TOPOMASK_INSTANTIATE

}  // namespace topomask
