// Forward pass: a warp owns rows of queries, keys and values pass by in tiles of 64.
//
// A block of threads walks over its share of all tiles of queries, so that the first rows of the next are on
// their way while it finishes this one.
#include "attention/cuda/dense_attention_tiles.cuh"
#include "attention/cuda/dense_attention_warpgroup.h"
#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"

namespace topomask {

using namespace dense;

namespace {

constexpr int kTileKeys = 64;
constexpr int kStep = 32;  // keys that a warp scores at a time

template <int kWidth>
struct ForwardShape {
  // 32 rows per warp halve the traffic of keys and values from shared memory; 128 channels leave registers
  // for 16.
  static constexpr int kRowBlocks = kWidth == 128 ? 1 : 2;
  static constexpr int kWarps = kWidth == 128 ? 8 : 4;
  static constexpr int kMinBlocks = kWidth == 128 ? 1 : 2;
  static constexpr int kRows = kWarps * kRowBlocks * 16;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kTileBytes = kTileKeys * kWidth * 2;
  static constexpr int kQueryBytes = kRows * kWidth * 2;
  static constexpr int kSharedBytes = 2 * kQueryBytes + 4 * kTileBytes;
};

struct Place {
  int batch, head, first_row;
};

// What one row of queries has seen so far.
struct RowState {
  float sum = 0;          // D_i
  float max = -INFINITY;  // softmax only
};

// Turns products into exp(scale (product - largest so far)), 0 where the mask is, and shrinks what was summed
// with a smaller maximum. The maximum runs over what the mask lets through, so that a masked-out giant cannot
// underflow the rest.
template <class T, int kTiles>
__device__ void exponentiate(float (&score)[4][4], const Pair (&m16)[2][4], RowState (&state)[2],
                             float (&out)[kTiles][4], float exponent_scale) {
  float largest[2] = {state[0].max, state[1].max};
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 pair = Half<T>::unpack(m16[s / 2][(s % 2) * 2 + e / 2]);
      if ((e % 2 == 0 ? pair.x : pair.y) == 0) score[s][e] = -INFINITY;
      largest[e / 2] = fmaxf(largest[e / 2], score[s][e]);
    }
  }
  float shrink[2], base[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float x = max_lanes<4>(largest[half]);
    shrink[half] = x == state[half].max ? 1 : fast_exp2((state[half].max - x) * exponent_scale);
    base[half] = x == -INFINITY ? 0 : x * exponent_scale;
    state[half].max = x;
    state[half].sum *= shrink[half];
  }
  if (__any_sync(0xffffffffu, shrink[0] != 1 || shrink[1] != 1)) {
#pragma unroll
    for (auto& o : out) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[e] *= shrink[e / 2];
    }
  }
#pragma unroll
  for (int s = 0; s < 4; ++s) {
#pragma unroll
    for (int e = 0; e < 4; ++e) score[s][e] = fast_exp2(fmaf(score[s][e], exponent_scale, -base[e / 2]));
  }
}

// Multiplies 16 rows of queries, held as left operands, by their scales, which it tells.
template <class T, int kBlocks>
__device__ void scale_rows(Pair (&query)[kBlocks][4], float (&row_scale)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = 0;
#pragma unroll
    for (const auto& block : query)
      largest = fmaxf(largest, largest_of<T>({block[half], block[half + 2], 0, 0}));
    row_scale[half] = forward_row_scale(max_lanes<4>(largest));
#pragma unroll
    for (auto& block : query) {
      block[half] = scaled<T>(block[half], row_scale[half]);
      block[half + 2] = scaled<T>(block[half + 2], row_scale[half]);
    }
  }
}

template <class T, int kWidth, bool kSoftmax>
__global__ __launch_bounds__(ForwardShape<kWidth>::kThreads, ForwardShape<kWidth>::kMinBlocks)  //
    void forward_kernel(const __grid_constant__ DenseAttention a, const __grid_constant__ DenseForward f) {
  using Shape = ForwardShape<kWidth>;
  using Layout = Tile<kWidth>;
  constexpr int kTileGroups = kTileKeys / Groups<kWidth, Shape::kThreads>::kRows;
  constexpr int kQueryGroups = Shape::kRows / Groups<kWidth, Shape::kThreads>::kRows;
  constexpr int kRowBlocks = Shape::kRowBlocks, kThreads = Shape::kThreads;
  constexpr int kBlocks = kWidth / 16;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane >> 2;
  const int n = a.num_nodes;

  const int row_tiles = (n + Shape::kRows - 1) / Shape::kRows, num_items = row_tiles * a.batch * a.heads;
  const int num_tiles = (n + kTileKeys - 1) / kTileKeys;
  // Neighbouring blocks of threads share keys and values, then the mask.
  const auto locate = [&](int item) {
    const int pair = item / row_tiles;
    return Place{pair % a.batch, pair / a.batch, item % row_tiles * Shape::kRows};
  };

  const std::uint32_t queries = shared_address(shared), tiles = queries + 2 * Shape::kQueryBytes;
  const auto copy_queries = [&](const Place& from, int slot) {
    copy_rows<T, kWidth, kThreads>(queries + slot * Shape::kQueryBytes,
                                   row_start<T>(a.q, a.q_strides, from.batch, from.head, from.first_row),
                                   a.q_strides.row, 0, kQueryGroups, n - from.first_row, a.d);
  };
  const auto copy_tile = [&](const Place& from, int tile, int slot) {
    const int first = tile * kTileKeys;
    const std::uint32_t to = tiles + slot * 2 * Shape::kTileBytes;
    copy_rows<T, kWidth, kThreads>(to, row_start<T>(a.k, a.k_strides, from.batch, from.head, first),
                                   a.k_strides.row, 0, kTileGroups, n - first, a.d);
    copy_rows<T, kWidth, kThreads>(to + Shape::kTileBytes,
                                   row_start<T>(a.v, a.v_strides, from.batch, from.head, first),
                                   a.v_strides.row, 0, kTileGroups, n - first, a.d_v);
    finish_issuing_copies();
  };

  int item = blockIdx.x, slot = 0, query_slot = 0;
  copy_queries(locate(item), 0);
  copy_tile(locate(item), 0, 0);
#pragma unroll 1
  for (; item < num_items; item += gridDim.x, query_slot ^= 1) {
    const Place here = locate(item);
    const int warp_row = here.first_row + warp * kRowBlocks * 16;
    const bool active = warp_row < n;
    const float exponent_scale = a.rule.scale * kLog2e;
    constexpr bool kScaled = kScalesRows<T> && !kSoftmax;
    Pair query[kRowBlocks][kBlocks][4];
    float row_scale[kRowBlocks][2];  // kScaled only
    float out[kRowBlocks][kWidth / 8][4] = {};
    RowState state[kRowBlocks][2];

    // The mask of the next step is on its way while this one is multiplied.
    Pair m16[kRowBlocks][2][4];
    const auto load_mask = [&](int step) {
      const PackedMask mask(f.mask, a.mask_heads == 1 ? 0 : here.head, n);
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
        for (int b = 0; b < 2; ++b) {
          PackedMask::load<false>(m16[m][b], mask.at(warp_row / 16 + m, step * (kStep / 16) + b) + lane);
        }
      }
    };
    if (active) load_mask(0);

#pragma unroll 1
    for (int tile = 0; tile < num_tiles; ++tile, slot ^= 1) {
      const std::uint32_t keys = tiles + slot * 2 * Shape::kTileBytes, values = keys + Shape::kTileBytes;
      wait_for_copies();
      if (a.rule.is_relu())
        map_features<T, kWidth, kThreads, false>(keys, 0, kTileGroups, a.d, a.rule.epsilon);
      __syncthreads();
      if (tile + 1 < num_tiles) {
        copy_tile(here, tile + 1, slot ^ 1);
      } else if (item + static_cast<int>(gridDim.x) < num_items) {
        const Place next = locate(item + gridDim.x);
        copy_queries(next, query_slot ^ 1);
        copy_tile(next, 0, slot ^ 1);
      }
      if (!active) continue;
      const int lane_here = opaque(lane);
      const std::uint32_t by_row = Layout::lane_by_row(lane_here),
                          by_column = Layout::lane_by_column(lane_here);

      if (tile == 0) {
        const ReluFeatures<T> features(a.rule.epsilon);
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
          for (int c = 0; c < kBlocks; ++c) {
            load_block(query[m][c], Layout::at(queries + query_slot * Shape::kQueryBytes, by_row,
                                               (warp * kRowBlocks + m) * 16, 2 * c));
            if (a.rule.is_relu()) {
#pragma unroll
              for (Pair& x : query[m][c]) x = features(x);  // padding meets zeros
            }
          }
          if constexpr (kScaled) scale_rows<T>(query[m], row_scale[m]);
        }
      }

#pragma unroll
      for (int step = 0; step < kTileKeys / kStep; ++step) {
        float score[kRowBlocks][4][4] = {};
#pragma unroll
        for (int c = 0; c < kBlocks; ++c) {
#pragma unroll
          for (int b = 0; b < 2; ++b) {
            Pair key[4];
            load_block(key, Layout::at(keys, by_column, step * kStep + b * 16, 2 * c));
#pragma unroll
            for (int m = 0; m < kRowBlocks; ++m) {
              Half<T>::multiply(score[m][2 * b], query[m][c], key[0], key[1]);
              Half<T>::multiply(score[m][2 * b + 1], query[m][c], key[2], key[3]);
            }
          }
        }

        if constexpr (kSoftmax) {
#pragma unroll
          for (int m = 0; m < kRowBlocks; ++m)
            exponentiate<T>(score[m], m16[m], state[m], out[m], exponent_scale);
        }

        Pair weight[kRowBlocks][2][4];
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
          for (int b = 0; b < 2; ++b) {
#pragma unroll
            for (int part = 0; part < 4; ++part) {
              const float2 pair = Half<T>::unpack(m16[m][b][part]);
              const float(&s)[4] = score[m][2 * b + part / 2];
              const float x = pair.x * s[(part % 2) * 2], y = pair.y * s[(part % 2) * 2 + 1];
              state[m][part % 2].sum += x + y;
              weight[m][b][part] = pack<T>(x, y);
            }
          }
        }

        const int next_step = tile * (kTileKeys / kStep) + step + 1;
        if (next_step < num_tiles * (kTileKeys / kStep)) load_mask(next_step);

#pragma unroll
        for (int b = 0; b < 2; ++b) {
#pragma unroll
          for (int c = 0; c < kBlocks; ++c) {
            Pair value[4];
            load_block_transposed(value, Layout::at(values, by_row, step * kStep + b * 16, 2 * c));
#pragma unroll
            for (int m = 0; m < kRowBlocks; ++m) {
              Half<T>::multiply(out[m][2 * c], weight[m][b], value[0], value[1]);
              Half<T>::multiply(out[m][2 * c + 1], weight[m][b], value[2], value[3]);
            }
          }
        }
      }
    }
    if (!active) continue;

    T* to = row_start<T>(f.out, f.out_strides, here.batch, here.head, warp_row);
    const std::int64_t statistics = (static_cast<std::int64_t>(here.batch) * a.heads + here.head) * n;
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
      float inverse[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        RowState row = state[m][half];
        row.sum = sum_lanes<4>(row.sum);
        if constexpr (kScaled) row.sum /= row_scale[m][half];
        inverse[half] = fabsf(row.sum) <= a.rule.guard ? 0 : 1 / row.sum;
        const int i = warp_row + m * 16 + half * 8 + g;
        if (i < n && lane % 4 == 0) {
          f.inverse_normaliser[statistics + i] = inverse[half];
          if (kSoftmax) f.row_max[statistics + i] = row.max == -INFINITY ? 0 : row.max * a.rule.scale;
        }
        if constexpr (kScaled) inverse[half] /= row_scale[m][half];
      }
      store_rows<T>(out[m], inverse[0], inverse[1], to + m * 16 * f.out_strides.row, f.out_strides.row, 0,
                    n - warp_row - m * 16, a.d_v, lane);
    }
  }
}

}  // namespace

cudaError_t dense_attention_forward(const DenseAttention& a, const DenseForward& f, cudaStream_t stream) {
#ifdef TOPOMASK_WARPGROUP
  if (warpgroup_forward_fits(a)) return warpgroup_forward(a, f, stream);
#endif
  return dispatch(a, [&]<class T, int kWidth, bool kSoftmax>() {
    using Shape = ForwardShape<kWidth>;
    const auto kernel = forward_kernel<T, kWidth, kSoftmax>;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
    if (status != cudaSuccess) return status;
    const std::int64_t items =
        static_cast<std::int64_t>((a.num_nodes + Shape::kRows - 1) / Shape::kRows) * a.batch * a.heads;
    const std::int64_t at_once = std::int64_t{num_multiprocessors()} * Shape::kMinBlocks;
    const auto blocks = static_cast<unsigned>(items < at_once ? items : at_once);
    kernel<<<blocks, Shape::kThreads, Shape::kSharedBytes, stream>>>(a, f);
    return cudaGetLastError();
  });
}

}  // namespace topomask
