#include "masks/cuda/forest.h"

namespace topomask {

namespace {

constexpr int kColumns = 32, kRows = 16;  // of a block

template <class T>
constexpr std::int64_t column_blocks(const DeviceForestProduct<T>& product) {
  return (product.columns + kColumns - 1) / kColumns;
}

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

// One column of one head: what there is to do for a position. A level needs those below it on the way up, and
// those above it on the way down.
template <class T, bool kDual>
struct ForestColumn {
  using Dual = Number<T, kDual>;

  const DeviceForest& forest;
  const DeviceForestProduct<T>& product;
  std::int64_t base;
  T rate;

  __device__ ForestColumn(const DeviceForest& of, const DeviceForestProduct<T>& wanted, std::int64_t head,
                          std::int64_t column)
      : forest(of),
        product(wanted),
        base(head * of.num_nodes * wanted.columns + column),
        rate(wanted.a[head]) {}

  __device__ T* inside() const { return product.workspace + base; }
  __device__ T* outside() const { return product.workspace + product.size + base; }
  __device__ Dual read(const T* from, std::int64_t position) const {
    Dual number;
    number.value = from[position * product.columns];
    if constexpr (kDual) number.slope = from[2 * product.size + position * product.columns];
    return number;
  }
  __device__ void write(T* to, std::int64_t position, const Dual& number) const {
    to[position * product.columns] = number.value;
    if constexpr (kDual) to[2 * product.size + position * product.columns] = number.slope;
  }
  __device__ T given(std::int64_t k) const { return product.x[base + forest.node[k] * product.columns]; }
  __device__ Dual sent_up(std::int32_t child) const {
    const T length = static_cast<T>(forest.length[child]);
    return read(inside(), child).sent(exp(rate * length), length);
  }

  // inside = x + what the children's subtrees send over their edges.
  __device__ void up(std::int64_t k, bool is_root) const {
    Dual own;
    own.value = given(k);
    for (std::int32_t c = forest.child_begin[k]; c < forest.child_end[k]; ++c) own.add(sent_up(c));
    write(inside(), k, own);
    if (is_root) write(outside(), k, Dual());
  }
  // outside = what reaches a node from beyond its subtree: its parent and its siblings, before and after. No
  // differences are formed, so that nothing cancels.
  __device__ void down(std::int64_t k) const {
    const std::int32_t begin = forest.child_begin[k], end = forest.child_end[k];
    const Dual from_above = read(outside(), k);
    Dual running = from_above;
    running.value += given(k);
    for (std::int32_t c = begin; c < end; ++c) {
      write(outside(), c, running);
      running.add(sent_up(c));
    }
    running = Dual();
    for (std::int32_t c = end - 1; c >= begin; --c) {
      const T length = static_cast<T>(forest.length[c]);
      Dual arrived = read(outside(), c);
      arrived.add(running);
      write(outside(), c, arrived.sent(exp(rate * length), length));
      running.add(sent_up(c));
    }
    Dual total = read(inside(), k);
    total.add(from_above);
    product.y[base + forest.node[k] * product.columns] = total.value;
    if constexpr (kDual) product.derivative[base + forest.node[k] * product.columns] = total.slope;
  }
};

// Deep forests: one block per head and run of kColumns columns walks the levels alone, so that a barrier of
// the block is all they need between them. Warps share out the nodes of a level, lanes the columns.
template <class T, bool kDual>
__global__ void __launch_bounds__(kColumns* kRows)
    all_levels(const __grid_constant__ DeviceForest forest,
               const __grid_constant__ DeviceForestProduct<T> product) {
  const std::int64_t column = blockIdx.x % column_blocks(product) * kColumns + threadIdx.x;
  const bool inside_columns = column < product.columns;
  const ForestColumn<T, kDual> own(forest, product, blockIdx.x / column_blocks(product), column);
  const auto for_level = [&](std::int64_t level, const auto& visit) {
    for (std::int64_t k = forest.level_ptr[level] + threadIdx.y;
         inside_columns && k < forest.level_ptr[level + 1]; k += kRows) {
      visit(k);
    }
    __syncthreads();
  };
  for (std::int64_t level = forest.num_levels - 1; level >= 0; --level) {
    for_level(level, [&](std::int64_t k) { own.up(k, level == 0); });
  }
  for (std::int64_t level = 0; level < forest.num_levels; ++level) {
    for_level(level, [&](std::int64_t k) { own.down(k); });
  }
}

// Wide forests: a launch for every level, over all of its nodes.
template <class T, bool kDual>
__global__ void __launch_bounds__(kColumns* kRows)
    one_level(const __grid_constant__ DeviceForest forest,
              const __grid_constant__ DeviceForestProduct<T> product, std::int32_t begin, std::int32_t end,
              bool upwards) {
  const std::int64_t row_blocks = (end - begin + kRows - 1) / kRows, column_block = blockIdx.x / row_blocks;
  const std::int64_t column = column_block % column_blocks(product) * kColumns + threadIdx.x;
  const std::int64_t k = begin + blockIdx.x % row_blocks * kRows + threadIdx.y;
  if (k >= end || column >= product.columns) return;
  const ForestColumn<T, kDual> own(forest, product, column_block / column_blocks(product), column);
  if (upwards) {
    own.up(k, begin == 0);
  } else {
    own.down(k);
  }
}

constexpr std::int64_t kWideLevel = 64;  // nodes: one block takes about as long for them as a launch does

template <class T, bool kDual>
cudaError_t launch(const DeviceForest& forest, const DeviceForestProduct<T>& product, cudaStream_t stream) {
  const dim3 threads(kColumns, kRows);
  const std::int64_t blocks = product.heads * column_blocks(product);
  if (forest.num_nodes < kWideLevel * forest.num_levels) {
    all_levels<T, kDual><<<static_cast<unsigned>(blocks), threads, 0, stream>>>(forest, product);
    return cudaGetLastError();
  }
  const auto run_level = [&](std::int64_t level, bool upwards) {
    const std::int32_t begin = forest.host_level_ptr[level], end = forest.host_level_ptr[level + 1];
    const std::int64_t row_blocks = (end - begin + kRows - 1) / kRows;
    one_level<T, kDual><<<static_cast<unsigned>(blocks * row_blocks), threads, 0, stream>>>(
        forest, product, begin, end, upwards);
  };
  for (std::int64_t level = forest.num_levels - 1; level >= 0; --level) run_level(level, true);
  for (std::int64_t level = 0; level < forest.num_levels; ++level) run_level(level, false);
  return cudaGetLastError();
}

}  // namespace

template <class T>
cudaError_t forest_product_on_device(const DeviceForest& forest, const DeviceForestProduct<T>& product,
                                     cudaStream_t stream) {
  if (product.size == 0) return cudaSuccess;
  return product.derivative == nullptr ? launch<T, false>(forest, product, stream)
                                       : launch<T, true>(forest, product, stream);
}

template cudaError_t forest_product_on_device(const DeviceForest&, const DeviceForestProduct<float>&,
                                              cudaStream_t);
template cudaError_t forest_product_on_device(const DeviceForest&, const DeviceForestProduct<double>&,
                                              cudaStream_t);

}  // namespace topomask
