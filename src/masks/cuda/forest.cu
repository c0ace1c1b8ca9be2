#include "masks/cuda/forest.h"

namespace topomask {

namespace {

constexpr int kColumns = 32, kRows = 16;

// A value and, for dual numbers, its derivative by a.
template <class T, bool kDual>
struct Number {
  T value = 0, slope = 0;

  __device__ void add(const Number& other) {
    value += other.value;
    if constexpr (kDual) slope += other.slope;
  }
  // Over an edge: d/da of exp(a l) v is exp(a l) (v' + l v).
  __device__ Number sent(T factor, T length) const {
    Number result;
    result.value = factor * value;
    if constexpr (kDual) result.slope = factor * (slope + length * value);
    return result;
  }
};

// One block per head and run of kColumns columns: it walks the levels alone, so that a barrier of the block
// is all they need between them. Warps share out the nodes of a level, lanes the columns.
template <class T, bool kDual>
__global__ void __launch_bounds__(kColumns* kRows)
    forest_kernel(DeviceForest forest, const T* a, std::int64_t columns, std::int64_t column_blocks,
                  const T* x, T* y, T* derivative, T* workspace, std::int64_t size) {
  using Dual = Number<T, kDual>;
  const std::int64_t head = blockIdx.x / column_blocks;
  const std::int64_t column = blockIdx.x % column_blocks * kColumns + threadIdx.x;
  const bool inside_columns = column < columns;
  const std::int64_t base = head * forest.num_nodes * columns + column;
  const T rate = a[head];
  T *inside = workspace + base, *outside = workspace + size + base;
  const auto read = [&](const T* from, std::int64_t position) {
    Dual number;
    number.value = from[position * columns];
    if constexpr (kDual) number.slope = from[2 * size + position * columns];
    return number;
  };
  const auto write = [&](T* to, std::int64_t position, const Dual& number) {
    to[position * columns] = number.value;
    if constexpr (kDual) to[2 * size + position * columns] = number.slope;
  };
  const auto sent_up = [&](std::int32_t child) {
    const T length = static_cast<T>(forest.length[child]);
    return read(inside, child).sent(exp(rate * length), length);
  };

  // Up: inside = x + what the children's subtrees send over their edges.
  for (std::int64_t level = forest.num_levels - 1; level >= 0; --level) {
    for (std::int64_t k = forest.level_ptr[level] + threadIdx.y;
         inside_columns && k < forest.level_ptr[level + 1]; k += kRows) {
      Dual own;
      own.value = x[base + forest.node[k] * columns];
      for (std::int32_t c = forest.child_begin[k]; c < forest.child_end[k]; ++c) own.add(sent_up(c));
      write(inside, k, own);
      if (level == 0) write(outside, k, Dual());
    }
    __syncthreads();
  }
  // Down: outside = what reaches a node from beyond its subtree: its parent and its siblings, before and
  // after. No differences are formed, so that nothing cancels.
  for (std::int64_t level = 0; level < forest.num_levels; ++level) {
    for (std::int64_t k = forest.level_ptr[level] + threadIdx.y;
         inside_columns && k < forest.level_ptr[level + 1]; k += kRows) {
      const std::int32_t begin = forest.child_begin[k], end = forest.child_end[k];
      const Dual from_above = read(outside, k);
      Dual running = from_above;
      running.value += x[base + forest.node[k] * columns];
      for (std::int32_t c = begin; c < end; ++c) {
        write(outside, c, running);
        running.add(sent_up(c));
      }
      running = Dual();
      for (std::int32_t c = end - 1; c >= begin; --c) {
        const T length = static_cast<T>(forest.length[c]);
        Dual arrived = read(outside, c);
        arrived.add(running);
        write(outside, c, arrived.sent(exp(rate * length), length));
        running.add(sent_up(c));
      }
      Dual total = read(inside, k);
      total.add(from_above);
      y[base + forest.node[k] * columns] = total.value;
      if constexpr (kDual) derivative[base + forest.node[k] * columns] = total.slope;
    }
    __syncthreads();
  }
}

}  // namespace

template <class T>
cudaError_t forest_product_on_device(const DeviceForest& forest, const T* a, std::int64_t heads,
                                     std::int64_t columns, const T* x, T* y, T* derivative, T* workspace,
                                     cudaStream_t stream) {
  if (forest.num_nodes == 0 || heads == 0 || columns == 0) return cudaSuccess;
  const std::int64_t column_blocks = (columns + kColumns - 1) / kColumns;
  const auto blocks = static_cast<unsigned>(heads * column_blocks);
  const dim3 threads(kColumns, kRows);
  const std::int64_t size = heads * forest.num_nodes * columns;
  if (derivative == nullptr) {
    forest_kernel<T, false><<<blocks, threads, 0, stream>>>(forest, a, columns, column_blocks, x, y,
                                                            derivative, workspace, size);
  } else {
    forest_kernel<T, true><<<blocks, threads, 0, stream>>>(forest, a, columns, column_blocks, x, y,
                                                           derivative, workspace, size);
  }
  return cudaGetLastError();
}

template cudaError_t forest_product_on_device(const DeviceForest&, const float*, std::int64_t, std::int64_t,
                                              const float*, float*, float*, float*, cudaStream_t);
template cudaError_t forest_product_on_device(const DeviceForest&, const double*, std::int64_t, std::int64_t,
                                              const double*, double*, double*, double*, cudaStream_t);

}  // namespace topomask
