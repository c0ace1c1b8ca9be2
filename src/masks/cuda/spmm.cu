#include <algorithm>

#include "core/cuda/lanes.cuh"
#include "masks/cuda/device_item.cuh"
#include "masks/cuda/spmm.h"

namespace topomask {

namespace {

constexpr int kThreads = 256;

template <class T>
struct Wide;  // sixteen bytes
template <>
struct Wide<float> {
  using Type = float4;
  static constexpr int kWidth = 4;
  __device__ static void add(float4& sum, float weight, float4 x) {
    sum.x = fmaf(weight, x.x, sum.x);
    sum.y = fmaf(weight, x.y, sum.y);
    sum.z = fmaf(weight, x.z, sum.z);
    sum.w = fmaf(weight, x.w, sum.w);
  }
  __device__ static float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
};
template <>
struct Wide<double> {
  using Type = double2;
  static constexpr int kWidth = 2;
  __device__ static void add(double2& sum, double weight, double2 x) {
    sum.x = fma(weight, x.x, sum.x);
    sum.y = fma(weight, x.y, sum.y);
  }
  __device__ static double dot(double2 a, double2 b) { return a.x * b.x + a.y * b.y; }
};
// Single numbers, where rows are not made of whole vectors.
template <class T>
struct Narrow {
  using Type = T;
  static constexpr int kWidth = 1;
  __device__ static void add(T& sum, T weight, T x) { sum = fma(weight, x, sum); }
  __device__ static T dot(T a, T b) { return a * b; }
};

// `lanes` threads to an item and tile of columns; blocks run over items first, then tiles, then heads.
template <class T, class V>
__global__ void __launch_bounds__(kThreads)
    spmm_kernel(DeviceRows matrix, const T* value, std::int64_t value_step, const T* x, std::int64_t columns,
                std::int64_t tiles, int lanes, std::int64_t item_blocks, bool segments, T* y) {
  using Type = typename V::Type;
  const std::int64_t block = blockIdx.x, per_block = kThreads / lanes;
  const std::int64_t index = block % item_blocks * per_block + static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t tile = block / item_blocks % tiles, head = block / item_blocks / tiles;
  const std::int64_t column = (tile * lanes + static_cast<int>(threadIdx.x) % lanes) * V::kWidth;
  const Item item = item_at(matrix, index, segments);
  if (!item.mine || column >= columns) return;
  const T* rows = x + head * matrix.num_rows * columns + column;
  const T* weights = value + head * value_step;
  Type sum = {};
#pragma unroll 4
  for (std::int64_t p = item.first; p < item.first + item.count; ++p) {
    const T weight = weights[matrix.entry == nullptr ? p : matrix.entry[p]];
    V::add(sum, weight, *reinterpret_cast<const Type*>(rows + matrix.col[p] * columns));
  }
  const std::int64_t out_row =
      segments ? head * matrix.num_segments + index : head * matrix.num_rows + item.row;
  *reinterpret_cast<Type*>(y + out_row * columns + column) = sum;
}

// Adds up the segments of the long rows, one block per long row and head.
template <class T>
__global__ void combine_segments(DeviceRows matrix, const T* found, std::int64_t columns, T* y) {
  const std::int64_t which = blockIdx.x % matrix.num_long, head = blockIdx.x / matrix.num_long;
  for (std::int64_t c = threadIdx.x; c < columns; c += kThreads) {
    T sum = 0;
    for (std::int64_t s = matrix.segment_ptr[which]; s < matrix.segment_ptr[which + 1]; ++s)
      sum += found[(head * matrix.num_segments + s) * columns + c];
    y[(head * matrix.num_rows + matrix.long_row[which]) * columns + c] = sum;
  }
}

// One warp to an item, one dot product at a time.
template <class T, class V>
__global__ void __launch_bounds__(kThreads)
    dots_kernel(DeviceRows matrix, const T* a, const T* b, std::int64_t heads, std::int64_t columns,
                std::int64_t item_blocks, bool segments, T* out, std::int64_t out_heads) {
  using Type = typename V::Type;
  const std::int64_t index =
      blockIdx.x % item_blocks * (kThreads / kWarpSize) + static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t group = blockIdx.x / item_blocks;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const Item item = item_at(matrix, index, segments);
  if (!item.mine) return;
  const std::int64_t first_head = out_heads == 1 ? 0 : group, last_head = out_heads == 1 ? heads : group + 1;
  const std::int64_t head_size = matrix.num_rows * columns;
  for (std::int64_t p = item.first; p < item.first + item.count; ++p) {
    T sum = 0;
    for (std::int64_t head = first_head; head < last_head; ++head) {
      const T* left = a + head * head_size + item.row * columns;
      const T* right = b + head * head_size + matrix.col[p] * columns;
      for (std::int64_t c = lane * V::kWidth; c < columns; c += kWarpSize * V::kWidth)
        sum += V::dot(*reinterpret_cast<const Type*>(left + c), *reinterpret_cast<const Type*>(right + c));
    }
    sum = sum_lanes(sum);
    if (lane == 0) out[group * matrix.nnz + (matrix.entry == nullptr ? p : matrix.entry[p])] = sum;
  }
}

template <class T>
bool is_wide(const T* pointer, std::int64_t columns) {
  return columns % Wide<T>::kWidth == 0 && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

template <class T, class V>
cudaError_t launch_spmm(const DeviceRows& matrix, const T* value, std::int64_t value_step, const T* x,
                        std::int64_t heads, std::int64_t columns, bool segments, T* y, cudaStream_t stream) {
  const std::int64_t vectors = (columns + V::kWidth - 1) / V::kWidth;
  int lanes = 1;
  while (lanes < kWarpSize && lanes < vectors) lanes *= 2;
  const std::int64_t tiles = (vectors + lanes - 1) / lanes, per_block = kThreads / lanes;
  const std::int64_t items = segments ? matrix.num_segments : matrix.num_rows;
  const std::int64_t item_blocks = (items + per_block - 1) / per_block;
  spmm_kernel<T, V><<<static_cast<unsigned>(item_blocks * tiles * heads), kThreads, 0, stream>>>(
      matrix, value, value_step, x, columns, tiles, lanes, item_blocks, segments, y);
  return cudaGetLastError();
}

template <class T, class V>
cudaError_t launch_dots(const DeviceRows& matrix, const T* a, const T* b, std::int64_t heads,
                        std::int64_t columns, bool segments, T* out, std::int64_t out_heads,
                        cudaStream_t stream) {
  const std::int64_t items = segments ? matrix.num_segments : matrix.num_rows,
                     per_block = kThreads / kWarpSize;
  const std::int64_t item_blocks = (items + per_block - 1) / per_block;
  dots_kernel<T, V><<<static_cast<unsigned>(item_blocks * out_heads), kThreads, 0, stream>>>(
      matrix, a, b, heads, columns, item_blocks, segments, out, out_heads);
  return cudaGetLastError();
}

}  // namespace

template <class T>
cudaError_t spmm_on_device(const DeviceRows& matrix, const T* value, std::int64_t value_step, const T* x,
                           std::int64_t heads, std::int64_t columns, T* y, T* workspace,
                           cudaStream_t stream) {
  if (matrix.num_rows == 0 || columns == 0 || heads == 0) return cudaSuccess;
  const auto launch = [&](bool segments, T* out) {
    return is_wide(x, columns) && is_wide(out, columns)
               ? launch_spmm<T, Wide<T>>(matrix, value, value_step, x, heads, columns, segments, out, stream)
               : launch_spmm<T, Narrow<T>>(matrix, value, value_step, x, heads, columns, segments, out,
                                           stream);
  };
  const cudaError_t status = launch(false, y);
  if (status != cudaSuccess || matrix.num_long == 0) return status;
  const cudaError_t long_status = launch(true, workspace);
  if (long_status != cudaSuccess) return long_status;
  combine_segments<T><<<static_cast<unsigned>(matrix.num_long * heads), kThreads, 0, stream>>>(
      matrix, workspace, columns, y);
  return cudaGetLastError();
}

template <class T>
cudaError_t sampled_dots_on_device(const DeviceRows& matrix, const T* a, const T* b, std::int64_t heads,
                                   std::int64_t columns, T* out, std::int64_t out_heads,
                                   cudaStream_t stream) {
  if (matrix.num_rows == 0 || out_heads == 0) return cudaSuccess;
  const auto launch = [&](bool segments) {
    return is_wide(a, columns) && is_wide(b, columns)
               ? launch_dots<T, Wide<T>>(matrix, a, b, heads, columns, segments, out, out_heads, stream)
               : launch_dots<T, Narrow<T>>(matrix, a, b, heads, columns, segments, out, out_heads, stream);
  };
  const cudaError_t status = launch(false);
  if (status != cudaSuccess || matrix.num_long == 0) return status;
  return launch(true);
}

#define TOPOMASK_INSTANTIATE(T)                                                                          \
  template cudaError_t spmm_on_device(const DeviceRows&, const T*, std::int64_t, const T*, std::int64_t, \
                                      std::int64_t, T*, T*, cudaStream_t);                               \
  template cudaError_t sampled_dots_on_device(const DeviceRows&, const T*, const T*, std::int64_t,       \
                                              std::int64_t, T*, std::int64_t, cudaStream_t)
TOPOMASK_INSTANTIATE(float);
TOPOMASK_INSTANTIATE(double);
#undef TOPOMASK_INSTANTIATE

}  // namespace topomask
