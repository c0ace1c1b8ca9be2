// The backward pass for q, k and v: the rows that one block of threads works on, and how they get to it.
#pragma once

#include <type_traits>

#include "attention/cuda/dense_attention_tiles.cuh"
#include "core/cuda/lanes.cuh"

namespace topomask::dense {

template <int kWidth>
struct BackwardShape {
  static constexpr int kWarps = 8, kThreads = kWarps * 32;
  static constexpr int kStep = 32;                          // queries that a warp scores at a time
  static constexpr int kKeyBlocks = kWidth == 128 ? 1 : 2;  // of 16 keys, per warp; limited by registers
  static constexpr int kKeys = kWarps * kKeyBlocks * 16;
  static constexpr int kQueries = kWidth == 128 ? 32 : 64;  // of a tile; limited by shared memory
};

// Where one block of keys finds its rows. One thread works it out, all others look it up.
template <class T>
struct Item {
  const T *q, *grad_out, *out;  // row 0
  const T *k, *v;               // first key
  T *grad_q, *grad_k, *grad_v;
  float* share;       // of grad_q, where there are more blocks of keys than one
  const uint4* mask;  // packed, at the first key
  std::int64_t row;   // of row 0 in the statistics
  int first_key;
};

template <class T, int kWidth>
struct SharedMemory {
  using Shape = BackwardShape<kWidth>;
  static constexpr int kChunks = Tile<kWidth>::kChunks;
  struct Keys {
    T k[Shape::kKeys * kWidth], v[Shape::kKeys * kWidth];
  };
  struct Queries {
    T q[Shape::kQueries * kWidth], grad_out[Shape::kQueries * kWidth], out[Shape::kQueries * kWidth];
  };
  struct Statistics {
    float inverse[Shape::kQueries], max[Shape::kQueries], minus_delta[Shape::kQueries];
    float inverse_scale[Shape::kQueries];  // what queries were multiplied with, its inverse
  };
  Keys keys[2];        // of this item and of the next
  Queries queries[2];  // of this tile and of the next
  T grad_dots[Shape::kKeys * Shape::kQueries];
  Statistics statistics[2];
  Item<T> items[4];  // of the last, this and the next; a power of two
};
static_assert(sizeof(SharedMemory<__half, 64>) <= kMostSharedBytes);
static_assert(sizeof(SharedMemory<__half, 128>) <= kMostSharedBytes);

// float16 would lose gradients that are small because a row's weights sum to one. They carry a power of two
// of about the number of weights instead, taken out of the results.
template <class T>
__device__ float weight_scale(int num_nodes) {
  if constexpr (!std::is_same_v<T, __half>) return 1;
  return num_nodes >= 1024 ? 1024.f : static_cast<float>(1 << (32 - __clz(num_nodes)));
}

template <class T, int kWidth, bool kSoftmax>
struct BackwardRows {
  using Shape = BackwardShape<kWidth>;
  using Mine = Groups<kWidth, Shape::kThreads>;
  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kKeyGroups = Shape::kKeys / Mine::kRows, kQueryGroups = Shape::kQueries / Mine::kRows;
  static constexpr bool kScaled = kScalesRows<T>;

  const DenseAttention& a;
  const DenseBackward& b;
  SharedMemory<T, kWidth>& shared;

  // The thread's own place is asked for again wherever it is needed.
  __device__ static int thread() { return opaque(static_cast<int>(threadIdx.x)); }
  __device__ static int lane() { return thread() % 32; }
  __device__ static int warp() { return thread() / 32; }
  __device__ static int warp_key() { return warp() * Shape::kKeyBlocks * 16; }  // within the block of keys
  __device__ volatile Item<T>& item(int number) const { return shared.items[number & 3]; }

  __device__ void describe_item(int number, int index, int blocks_of_keys) const {
    const int pair = index / blocks_of_keys, block = index % blocks_of_keys;
    const int batch = pair % a.batch, head = pair / a.batch, first = block * Shape::kKeys;
    volatile Item<T>& to = item(number);
    to.q = row_start<T>(a.q, a.q_strides, batch, head, 0);
    to.grad_out = row_start<T>(b.grad_out, b.grad_out_strides, batch, head, 0);
    to.out = row_start<T>(b.out, b.out_strides, batch, head, 0);
    to.k = row_start<T>(a.k, a.k_strides, batch, head, first);
    to.v = row_start<T>(a.v, a.v_strides, batch, head, first);
    to.grad_q = row_start<T>(b.grad_q, b.grad_q_strides, batch, head, 0);
    to.grad_k = row_start<T>(b.grad_k, b.grad_k_strides, batch, head, first);
    to.grad_v = row_start<T>(b.grad_v, b.grad_v_strides, batch, head, first);
    const std::int64_t row = (static_cast<std::int64_t>(batch) * a.heads + head) * a.num_nodes;
    const std::int64_t rows = static_cast<std::int64_t>(a.batch) * a.heads * a.num_nodes;
    to.share = blocks_of_keys == 1 ? nullptr : b.workspace + (block * rows + row) * a.d;
    to.mask = PackedMask(b.mask_transposed, a.mask_heads == 1 ? 0 : head, a.num_nodes).at(first / 16, 0);
    to.row = row;
    to.first_key = first;
  }

  __device__ void copy_keys(int number, int begin, int end) const {
    volatile Item<T>& from = item(number);
    auto& to = shared.keys[number & 1];
    const int valid = a.num_nodes - from.first_key;
    copy_rows<T, kWidth, kThreads>(shared_address(to.k), from.k, a.k_strides.row, begin, end, valid, a.d);
    copy_rows<T, kWidth, kThreads>(shared_address(to.v), from.v, a.v_strides.row, begin, end, valid, a.d_v);
  }

  __device__ void copy_queries(int number, int stage, int tile) const {
    volatile Item<T>& from = item(number);
    auto& to = shared.queries[stage];
    const int first = tile * Shape::kQueries, valid = a.num_nodes - first;
    const auto copy = [&](T* tile_to, const T* rows, std::int64_t stride, int channels) {
      copy_rows<T, kWidth, kThreads>(shared_address(tile_to), rows + first * stride, stride, 0, kQueryGroups,
                                     valid, channels);
    };
    copy(to.q, from.q, a.q_strides.row, a.d);
    copy(to.grad_out, from.grad_out, b.grad_out_strides.row, a.d_v);
    copy(to.out, from.out, b.out_strides.row, a.d_v);
    const Mine mine;
    if (mine.chunk == 0) {
#pragma unroll
      for (int group = 0; group < kQueryGroups; ++group) {
        const int i = mine.row(group);
        const std::int64_t at = from.row + first + (i < valid ? i : 0);
        copy_word(shared_address(shared.statistics[stage].inverse + i), b.inverse_normaliser + at, i < valid);
        if (kSoftmax) copy_word(shared_address(shared.statistics[stage].max + i), b.row_max + at, i < valid);
      }
    }
  }

  __device__ void map_keys(int number, int begin, int end) const {
    map_features<T, kWidth, kThreads, true>(shared_address(shared.keys[number & 1].k), begin, end, a.d,
                                            a.rule.epsilon);
  }

  // What a thread does to the chunks that it copied itself: features of q and their scale, and
  // delta_i = <grad_out_i, out_i>.
  __device__ void prepare_queries(int number, int stage, int tile) const {
    auto& queries = shared.queries[stage];
    auto& statistics = shared.statistics[stage];
    if (a.rule.is_relu()) {
      map_features<T, kWidth, kThreads, !kScaled>(shared_address(queries.q), 0, kQueryGroups, a.d,
                                                  a.rule.epsilon);
    }
    constexpr int kChunks = Tile<kWidth>::kChunks;
    const Mine mine;
    float sum[kQueryGroups];
    [[maybe_unused]] float largest_grad[kQueryGroups];
#pragma unroll
    for (int group = 0; group < kQueryGroups; ++group) {
      const uint4 x = read_shared(shared_address(queries.grad_out) + mine.offset(group));
      const uint4 y = read_shared(shared_address(queries.out) + mine.offset(group));
      sum[group] = dot<T>(x.x, y.x) + dot<T>(x.y, y.y) + (dot<T>(x.z, y.z) + dot<T>(x.w, y.w));
      if constexpr (kScaled) largest_grad[group] = largest_of<T>(x);
    }
#pragma unroll
    for (float& x : sum) x = sum_lanes<kChunks>(x);
#pragma unroll
    for (int group = 0; group < kQueryGroups; ++group) {
      const int i = mine.row(group), row = tile * Shape::kQueries + i;
      float inverse = mine.chunk == 0 ? statistics.inverse[i] * weight_scale<T>(a.num_nodes) : 0;
      if constexpr (kScaled) {
        const std::uint32_t at = shared_address(queries.q) + mine.offset(group);
        const uint4 q = read_shared(at);
        // The weights of softmax carry 1 / D_i themselves.
        const float size =
            kSoftmax ? weight_scale<T>(a.num_nodes) : __shfl_sync(0xffffffffu, inverse, 0, kChunks);
        const float scale = backward_row_scale(max_lanes<kChunks>(largest_of<T>(q)),
                                               max_lanes<kChunks>(largest_grad[group]), size);
        write_shared(at, scaled<T>(q, scale));
        if (mine.chunk == 0) statistics.inverse_scale[i] = 1 / scale;
        if (!kSoftmax) inverse /= scale;
      }
      if (mine.chunk == 0) {
        statistics.inverse[i] = inverse;
        if (kSoftmax) statistics.max[i] *= kLog2e;
        statistics.minus_delta[i] = -sum[group];
        if (b.delta != nullptr && row < a.num_nodes) b.delta[item(number).row + row] = sum[group];
      }
    }
  }
};

}  // namespace topomask::dense
