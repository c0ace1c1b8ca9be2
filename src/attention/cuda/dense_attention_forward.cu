// Forward pass: a warp owns rows of queries, keys and values pass by in tiles of 64.
#include "attention/cuda/dense_attention_tiles.cuh"

namespace topomask {

using namespace dense;

namespace {

constexpr int kTileKeys = 64;
constexpr int kStep = 32;  // keys that a warp scores at a time

template <int kWidth>
struct ForwardShape {
  // 32 rows a warp halve the traffic of keys and values from shared memory; 128 channels leave registers
  // for 16.
  static constexpr int kRowBlocks = kWidth == 128 ? 1 : 2;
  static constexpr int kWarps = kWidth == 128 ? 8 : 4;
  static constexpr int kMinBlocks = kWidth == 128 ? 1 : 2;
  static constexpr int kRows = kWarps * kRowBlocks * 16;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kTileBytes = kTileKeys * kWidth * 2;
  static constexpr int kSharedBytes = kRows * kWidth * 2 + 4 * kTileBytes;
};

// What one row of queries has seen so far.
struct RowState {
  float sum = 0;          // D_i
  float max = -INFINITY;  // softmax only
};

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

  // Neighbouring blocks of threads share keys and values, then the mask.
  const int row_tiles = (n + Shape::kRows - 1) / Shape::kRows;
  const int first_row = static_cast<int>(blockIdx.x % row_tiles) * Shape::kRows;
  const int batch = static_cast<int>(blockIdx.x / row_tiles) % a.batch;
  const int head = static_cast<int>(blockIdx.x / row_tiles) / a.batch;
  const T* q = row_start<T>(a.q, a.q_strides, batch, head, first_row);
  const T* k = row_start<T>(a.k, a.k_strides, batch, head, 0);
  const T* v = row_start<T>(a.v, a.v_strides, batch, head, 0);
  const PackedMask mask(f.mask, a.mask_heads == 1 ? 0 : head, n);

  const std::uint32_t queries = shared_address(shared);
  const std::uint32_t tiles = queries + Shape::kRows * Layout::kRowBytes;
  const auto key_tile = [&](int tile) { return tiles + (tile & 1) * 2 * Shape::kTileBytes; };
  const auto value_tile = [&](int tile) { return key_tile(tile) + Shape::kTileBytes; };
  const auto copy_tile = [&](int tile) {
    const std::int64_t first = static_cast<std::int64_t>(tile) * kTileKeys;
    const int valid = n - tile * kTileKeys;
    copy_rows<T, kWidth, kThreads>(key_tile(tile), k + first * a.k_strides.row, a.k_strides.row, 0,
                                   kTileGroups, valid, a.d);
    copy_rows<T, kWidth, kThreads>(value_tile(tile), v + first * a.v_strides.row, a.v_strides.row, 0,
                                   kTileGroups, valid, a.d_v);
    finish_issuing_copies();
  };

  copy_rows<T, kWidth, kThreads>(queries, q, a.q_strides.row, 0, kQueryGroups, n - first_row, a.d);
  copy_tile(0);

  const std::uint32_t by_row = Layout::lane_by_row(lane), by_column = Layout::lane_by_column(lane);
  const int warp_row = first_row + warp * kRowBlocks * 16;
  const bool active = warp_row < n;
  const float exponent_scale = a.scale * kLog2e;
  Pair query[kRowBlocks][kBlocks][4];
  float out[kRowBlocks][kWidth / 8][4] = {};
  RowState state[kRowBlocks][2];

  // The mask of the next step is on its way while this one is multiplied.
  Pair m16[kRowBlocks][2][4];
  const auto load_mask = [&](int step) {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int b = 0; b < 2; ++b)
        PackedMask::load<false>(m16[m][b], mask.at(warp_row / 16 + m, step * (kStep / 16) + b) + lane);
    }
  };
  if (active) load_mask(0);

  const int num_tiles = (n + kTileKeys - 1) / kTileKeys;
  for (int tile = 0; tile < num_tiles; ++tile) {
    wait_for_copies();
    if (a.relu) map_features<T, kWidth, kThreads, false>(key_tile(tile), 0, kTileGroups, a.d, a.epsilon);
    __syncthreads();
    if (tile + 1 < num_tiles) copy_tile(tile + 1);
    if (!active) continue;

    if (tile == 0) {
#pragma unroll
      for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
        for (int c = 0; c < kBlocks; ++c) {
          load_block(query[m][c], Layout::at(queries, by_row, (warp * kRowBlocks + m) * 16, 2 * c));
          if (a.relu) {
            const ReluFeatures<T> features(a.epsilon);
#pragma unroll
            for (Pair& x : query[m][c]) x = features(x);  // padding meets zeros
          }
        }
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
          load_block(key, Layout::at(key_tile(tile), by_column, step * kStep + b * 16, 2 * c));
#pragma unroll
          for (int m = 0; m < kRowBlocks; ++m) {
            Half<T>::multiply(score[m][2 * b], query[m][c], key[0], key[1]);
            Half<T>::multiply(score[m][2 * b + 1], query[m][c], key[2], key[3]);
          }
        }
      }

      if constexpr (kSoftmax) {
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m) {
          float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
          for (int s = 0; s < 4; ++s) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              // The maximum runs over what the mask lets through.
              const float2 pair = Half<T>::unpack(m16[m][s / 2][(s % 2) * 2 + e / 2]);
              if ((e % 2 == 0 ? pair.x : pair.y) == 0) score[m][s][e] = -INFINITY;
              largest[e / 2] = fmaxf(largest[e / 2], score[m][s][e]);
            }
          }
          float shrink[2];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& largest_here = largest[half];
            largest_here = fmaxf(largest_here, __shfl_xor_sync(0xffffffffu, largest_here, 1));
            largest_here = fmaxf(largest_here, __shfl_xor_sync(0xffffffffu, largest_here, 2));
            RowState& row = state[m][half];
            largest_here = fmaxf(largest_here, row.max);
            shrink[half] = largest_here == row.max ? 1 : fast_exp2((row.max - largest_here) * exponent_scale);
            row.max = largest_here;
            row.sum *= shrink[half];
          }
          if (__any_sync(0xffffffffu, shrink[0] != 1 || shrink[1] != 1)) {
#pragma unroll
            for (auto& o : out[m]) {
              o[0] *= shrink[0];
              o[1] *= shrink[0];
              o[2] *= shrink[1];
              o[3] *= shrink[1];
            }
          }
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float base = state[m][half].max == -INFINITY ? 0 : state[m][half].max * exponent_scale;
#pragma unroll
            for (int s = 0; s < 4; ++s) {
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                float& x = score[m][s][half * 2 + e];
                x = fast_exp2(fmaf(x, exponent_scale, -base));
              }
            }
          }
        }
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
          load_block_transposed(value, Layout::at(value_tile(tile), by_row, step * kStep + b * 16, 2 * c));
#pragma unroll
          for (int m = 0; m < kRowBlocks; ++m) {
            Half<T>::multiply(out[m][2 * c], weight[m][b], value[0], value[1]);
            Half<T>::multiply(out[m][2 * c + 1], weight[m][b], value[2], value[3]);
          }
        }
      }
    }
  }
  if (!active) return;

  T* to = row_start<T>(f.out, f.out_strides, batch, head, warp_row);
  const std::int64_t statistics = (static_cast<std::int64_t>(batch) * a.heads + head) * n;
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m) {
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      RowState row = state[m][half];
      row.sum += __shfl_xor_sync(0xffffffffu, row.sum, 1);
      row.sum += __shfl_xor_sync(0xffffffffu, row.sum, 2);
      inverse[half] = fabsf(row.sum) <= a.guard ? 0 : 1 / row.sum;
      const int i = warp_row + m * 16 + half * 8 + g;
      if (i < n && lane % 4 == 0) {
        f.inverse_normaliser[statistics + i] = inverse[half];
        if (kSoftmax) f.row_max[statistics + i] = row.max == -INFINITY ? 0 : row.max * a.scale;
      }
    }
    store_rows<T, kWidth, false>(out[m], inverse[0], inverse[1], to + m * 16 * f.out_strides.row,
                                 f.out_strides.row, 0, n - warp_row - m * 16, a.d_v, lane);
  }
}

}  // namespace

cudaError_t dense_attention_forward(const DenseAttention& a, const DenseForward& f, cudaStream_t stream) {
  return dispatch(a, [&]<class T, int kWidth, bool kSoftmax>() {
    using Shape = ForwardShape<kWidth>;
    const auto kernel = forward_kernel<T, kWidth, kSoftmax>;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
    if (status != cudaSuccess) return status;
    const std::int64_t row_tiles = (a.num_nodes + Shape::kRows - 1) / Shape::kRows;
    const auto blocks = static_cast<unsigned>(row_tiles * a.batch * a.heads);
    kernel<<<blocks, Shape::kThreads, Shape::kSharedBytes, stream>>>(a, f);
    return cudaGetLastError();
  });
}

}  // namespace topomask
