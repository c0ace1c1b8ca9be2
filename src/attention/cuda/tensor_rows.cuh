// Rows of bfloat16 as fragments straight from memory.
//
// A lane takes 16-byte chunks t and t + 4 of its row, 32 features apart, and hands their pairs to the products
// in an order of its own: which feature is multiplied when does not matter, as long as both operands agree.
#pragma once

#include <cstdint>

#include "attention/cuda/dense_attention_tiles.cuh"

namespace topomask::tensor_rows {

using dense::pack;
using dense::Pair;
using dense::Tile;
using T = __nv_bfloat16;
using Half = dense::Half<T>;
using Relu = dense::ReluFeatures<T>;

__device__ inline Pair word(const uint4& x, int which) {
  return which == 0 ? x.x : which == 1 ? x.y : which == 2 ? x.z : x.w;
}

// Eight numbers of a row; zeros where there are none.
__device__ inline uint4 load_chunk(const T* rows, std::int64_t step, std::int64_t node, int chunk,
                                   bool exists) {
  return exists ? __ldg(reinterpret_cast<const uint4*>(rows + node * step) + chunk) : uint4{0, 0, 0, 0};
}
// As features where wanted.
__device__ inline uint4 features_of(const uint4& x, bool relu, const Relu& map, bool exists) {
  if (!relu || !exists) return x;
  return {map(x.x), map(x.y), map(x.z), map(x.w)};
}

// Rows g and g + 8 of 16, kWidth wide.
template <int kWidth>
struct RowPair {
  uint4 chunk[2][kWidth / 32];

  // node: of both rows, negative where there is none.
  __device__ void load(const T* rows, std::int64_t step, const std::int64_t (&node)[2], int columns,
                       bool relu, const Relu& map, int t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < kWidth / 32; ++c) {
        const int which = t + 4 * c;
        const bool exists = node[half] >= 0 && which * 8 < columns;
        chunk[half][c] = features_of(load_chunk(rows, step, node[half], which, exists), relu, map, exists);
      }
    }
  }
  // The left operand of step s, 16 features.
  __device__ void left(Pair (&a)[4], int s) const {
    const int first = 2 * (s & 1);
    a[0] = word(chunk[0][s >> 1], first);
    a[1] = word(chunk[1][s >> 1], first);
    a[2] = word(chunk[0][s >> 1], first + 1);
    a[3] = word(chunk[1][s >> 1], first + 1);
  }
  __device__ void store(std::uint32_t tile, int g, int t) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int c = 0; c < kWidth / 32; ++c)
        dense::write_shared(tile + Tile<kWidth>::offset(g + 8 * half, t + 4 * c), chunk[half][c]);
    }
  }
};

// score[0] and score[1]: the products of 16 rows with keys 0 to 7 and 8 to 15, as accumulators.
template <int kWidth>
__device__ void add_scores(float (&score)[2][4], const RowPair<kWidth>& rows, const RowPair<kWidth>& keys) {
#pragma unroll
  for (int s = 0; s < kWidth / 16; ++s) {
    Pair a[4];
    rows.left(a, s);
    const int first = 2 * (s & 1);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      Half::multiply(score[half], a, word(keys.chunk[half][s >> 1], first),
                     word(keys.chunk[half][s >> 1], first + 1));
  }
}

// sum += weights z, with 16 rows of z in a tile of shared memory.
template <int kWidth>
__device__ void add_weighted(float (&sum)[kWidth / 8][4], const Pair (&weights)[4], std::uint32_t tile,
                             int lane) {
#pragma unroll
  for (int n = 0; n < kWidth / 8; n += 2) {
    Pair b[4];
    dense::load_block_transposed(b, Tile<kWidth>::at(tile, Tile<kWidth>::lane_by_row(lane), 0, n));
    Half::multiply(sum[n], weights, b[0], b[1]);
    Half::multiply(sum[n + 1], weights, b[2], b[3]);
  }
}

}  // namespace topomask::tensor_rows
