// Backward pass for q, k and v in one kernel.
//
// A block of threads owns up to 256 keys of one batch entry and head, a warp owns 32 (or 16) of them and
// their rows of grad_k and grad_v; queries pass by in tiles. Scores are computed transposed, keys by queries,
// so that weights and their gradients are left operands of the products that give grad_v and grad_k. Only the
// gradients of the dot products go through shared memory, once, to be contracted over the keys of all warps:
// grad_q of a tile is complete when the block has seen it. Nothing is added up in global memory, hence no
// atomics.
//
// There is one block on a multiprocessor, so nobody else hides its latencies: it walks over its share of the
// (batch, head) pairs and copies the rows of the next tile, and a slice of the next pair's keys and values,
// while it computes.
#include "attention/cuda/dense_attention_tiles.cuh"

namespace topomask {

using namespace dense;

namespace {

constexpr int kThreads = 256, kWarps = 8;
constexpr int kStep = 32;  // queries that a warp scores at a time

template <int kWidth>
struct BackwardShape {
  static constexpr int kKeyBlocks = kWidth == 128 ? 1 : 2;  // of 16 keys, per warp; limited by registers
  static constexpr int kKeys = kWarps * kKeyBlocks * 16;
  static constexpr int kQueries = kWidth == 128 ? 32 : 64;  // of a tile; limited by shared memory
  static constexpr int kKeyBytes = kKeys * kWidth * 2;      // of keys; values take as much
  static constexpr int kQueryBytes = kQueries * kWidth * 2;
  static constexpr int kStageBytes = 3 * kQueryBytes;            // q, grad_out, out
  static constexpr int kDotBytes = kKeys * kQueries * 2;         // gradients of the dot products
  static constexpr int kStatisticsBytes = 3 * kQueries * 4 * 2;  // two stages of 1/D_i, max_i, -delta_i
  static constexpr int kSharedBytes = 4 * kKeyBytes + 2 * kStageBytes + kDotBytes + kStatisticsBytes;
  static_assert(kSharedBytes <= kMostSharedBytes);
};

// float16 would lose gradients that are small because a row's weights sum to one. They carry a power of two
// of about the number of weights instead, taken out of the results.
__host__ __device__ inline float weight_scale(const DenseAttention& a) {
  if (a.type == HalfType::bfloat16) return 1;
  float scale = 1;
  while (scale < static_cast<float>(a.num_nodes) && scale < 1024) scale *= 2;
  return scale;
}

int key_blocks(const DenseAttention& a, int keys) {
  return (a.num_nodes + keys - 1) / keys;
}

struct Pairing {
  int batch, head, first_key;
};

template <class T, int kWidth, bool kSoftmax>
__global__ __launch_bounds__(kThreads, 1) void backward_kernel(const __grid_constant__ DenseAttention a,
                                                               const __grid_constant__ DenseBackward b,
                                                               int blocks_of_keys) {
  using Shape = BackwardShape<kWidth>;
  using Layout = Tile<kWidth>;
  using DotLayout = Tile<Shape::kQueries>;
  using Mine = Groups<kWidth, kThreads>;
  constexpr int kKeyGroups = Shape::kKeys / Mine::kRows, kQueryGroups = Shape::kQueries / Mine::kRows;
  constexpr int kKeyBlocks = Shape::kKeyBlocks, kBlocks = kWidth / 16;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int n = a.num_nodes;
  const float scale = weight_scale(a);
  const float exponent_scale = a.scale * kLog2e;

  const std::uint32_t keys_and_values = shared_address(shared);
  const std::uint32_t stages = keys_and_values + 4 * Shape::kKeyBytes;
  const std::uint32_t dots = stages + 2 * Shape::kStageBytes;
  float* const statistics =
      reinterpret_cast<float*>(shared + 4 * Shape::kKeyBytes + 2 * Shape::kStageBytes + Shape::kDotBytes);
  const auto inverse_of = [&](int stage) { return statistics + stage * 3 * Shape::kQueries; };
  const auto max_of = [&](int stage) { return inverse_of(stage) + Shape::kQueries; };
  const auto minus_delta_of = [&](int stage) { return inverse_of(stage) + 2 * Shape::kQueries; };

  const int num_items = a.batch * a.heads * blocks_of_keys;
  const auto item = [&](int index) {
    const int pair = index / blocks_of_keys;
    return Pairing{pair % a.batch, pair / a.batch, (index % blocks_of_keys) * Shape::kKeys};
  };
  const int num_tiles = (n + Shape::kQueries - 1) / Shape::kQueries;
  // Groups of the next keys and values that are copied with each tile.
  const int slice = (kKeyGroups + num_tiles - 1) / num_tiles;
  const auto slice_begin = [&](int tile) { return min(tile * slice, kKeyGroups); };

  const auto copy_keys = [&](const Pairing& to, int buffer, int begin, int end) {
    const T* k = row_start<T>(a.k, a.k_strides, to.batch, to.head, to.first_key);
    const T* v = row_start<T>(a.v, a.v_strides, to.batch, to.head, to.first_key);
    const std::uint32_t keys = keys_and_values + buffer * 2 * Shape::kKeyBytes;
    copy_rows<T, kWidth, kThreads>(keys, k, a.k_strides.row, begin, end, n - to.first_key, a.d);
    copy_rows<T, kWidth, kThreads>(keys + Shape::kKeyBytes, v, a.v_strides.row, begin, end, n - to.first_key,
                                   a.d_v);
  };
  const auto copy_queries = [&](const Pairing& to, int stage, int tile) {
    const int first = tile * Shape::kQueries, valid = n - first;
    const std::uint32_t base = stages + stage * Shape::kStageBytes;
    const T* q = row_start<T>(a.q, a.q_strides, to.batch, to.head, first);
    const T* g = row_start<T>(b.grad_out, b.grad_out_strides, to.batch, to.head, first);
    const T* o = row_start<T>(b.out, b.out_strides, to.batch, to.head, first);
    copy_rows<T, kWidth, kThreads>(base, q, a.q_strides.row, 0, kQueryGroups, valid, a.d);
    copy_rows<T, kWidth, kThreads>(base + Shape::kQueryBytes, g, b.grad_out_strides.row, 0, kQueryGroups,
                                   valid, a.d_v);
    copy_rows<T, kWidth, kThreads>(base + 2 * Shape::kQueryBytes, o, b.out_strides.row, 0, kQueryGroups,
                                   valid, a.d_v);
    if (threadIdx.x < Shape::kQueries) {
      const std::int64_t row = (static_cast<std::int64_t>(to.batch) * a.heads + to.head) * n + first;
      const int i = static_cast<int>(threadIdx.x);
      const std::int64_t at = row + (i < valid ? i : 0);
      copy_word(shared_address(inverse_of(stage) + i), b.inverse_normaliser + at, i < valid);
      if (kSoftmax) copy_word(shared_address(max_of(stage) + i), b.row_max + at, i < valid);
    }
  };

  // What a thread does to the chunks that it copied itself: features of q, and delta_i = <grad_out_i, out_i>.
  const auto prepare_queries = [&](const Pairing& of, int stage, int tile) {
    const std::uint32_t base = stages + stage * Shape::kStageBytes;
    if (a.relu) map_features<T, kWidth, kThreads>(base, 0, kQueryGroups, a.d, a.epsilon);
#pragma unroll
    for (int group = 0; group < kQueryGroups; ++group) {
      const int i = Mine::row(group);
      const std::uint32_t at = base + Shape::kQueryBytes + Layout::offset(i, Mine::chunk());
      const uint4 x = read_shared(at), y = read_shared(at + Shape::kQueryBytes);
      float sum = 0;
      const auto add = [&](Pair p, Pair r) {
        const float2 u = Half<T>::unpack(p), w = Half<T>::unpack(r);
        sum = fmaf(u.x, w.x, fmaf(u.y, w.y, sum));
      };
      add(x.x, y.x);
      add(x.y, y.y);
      add(x.z, y.z);
      add(x.w, y.w);
#pragma unroll
      for (int partner = 1; partner < Layout::kChunks; partner *= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, partner);
      }
      if (Mine::chunk() == 0) {
        minus_delta_of(stage)[i] = -sum;
        if (b.delta != nullptr && of.first_key == 0 && tile * Shape::kQueries + i < n) {
          b.delta[(static_cast<std::int64_t>(of.batch) * a.heads + of.head) * n + tile * Shape::kQueries +
                  i] = sum;
        }
      }
    }
    if (threadIdx.x < Shape::kQueries) {
      inverse_of(stage)[threadIdx.x] *= scale;
      if (kSoftmax) max_of(stage)[threadIdx.x] *= kLog2e;
    }
  };

  const std::uint32_t by_row = Layout::lane_by_row(lane), by_column = Layout::lane_by_column(lane);
  const std::uint32_t dot_by_column = DotLayout::lane_by_column(lane);

  int index = blockIdx.x;
  if (index >= num_items) return;
  copy_keys(item(index), 0, 0, kKeyGroups);
  copy_queries(item(index), 0, 0);
  finish_issuing_copies();
  bool first_keys = true;  // of this block of threads: copied at once, not in slices
  int buffer = 0, stage = 0;

  for (; index < num_items; index += gridDim.x, buffer ^= 1) {
    const Pairing here = item(index);
    const bool more = index + static_cast<int>(gridDim.x) < num_items;
    const Pairing next = item(more ? index + static_cast<int>(gridDim.x) : index);
    const std::uint32_t keys = keys_and_values + buffer * 2 * Shape::kKeyBytes,
                        values = keys + Shape::kKeyBytes;
    const std::uint32_t next_keys = keys_and_values + (buffer ^ 1) * 2 * Shape::kKeyBytes;
    const PackedMask mask(b.mask_transposed, a.mask_heads == 1 ? 0 : here.head, n);
    const int warp_key = warp * kKeyBlocks * 16;  // within the block of keys
    const bool active = here.first_key + warp_key < n;
    float grad_k[kKeyBlocks][kWidth / 8][4] = {}, grad_v[kKeyBlocks][kWidth / 8][4] = {};

    for (int tile = 0; tile < num_tiles; ++tile, stage ^= 1) {
      wait_for_copies();
      prepare_queries(here, stage, tile);
      if (a.relu) {
        // The slice that came with this tile belongs to the next pair, except for what the last tile of the
        // previous pair brought for this one.
        if (first_keys) {
          map_features<T, kWidth, kThreads>(keys, 0, kKeyGroups, a.d, a.epsilon);
        } else if (tile == 0) {
          map_features<T, kWidth, kThreads>(keys, slice_begin(num_tiles - 1), kKeyGroups, a.d, a.epsilon);
        }
        if (tile > 0 && more) {
          map_features<T, kWidth, kThreads>(next_keys, slice_begin(tile - 1), slice_begin(tile), a.d,
                                            a.epsilon);
        }
      }
      first_keys = false;
      __syncthreads();
      if (tile + 1 < num_tiles) {
        copy_queries(here, stage ^ 1, tile + 1);
      } else if (more) {
        copy_queries(next, stage ^ 1, 0);
      }
      if (more) copy_keys(next, buffer ^ 1, slice_begin(tile), slice_begin(tile + 1));
      finish_issuing_copies();

      const std::uint32_t queries = stages + stage * Shape::kStageBytes, grads = queries + Shape::kQueryBytes;
      if (active) {
#pragma unroll 1
        for (int step = 0; step < Shape::kQueries / kStep; ++step) {
          Pair m16[kKeyBlocks][2][4];
#pragma unroll
          for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              mask.load(m16[m][c], (here.first_key + warp_key) / 16 + m,
                        tile * (Shape::kQueries / 16) + step * 2 + c, lane);
            }
          }

          // Columns of these accumulators are queries: lane t has 2t and 2t+1 of every eight.
          const auto of_columns = [&](const float* row_statistics, int s) {
            return *reinterpret_cast<const float2*>(row_statistics + step * kStep + s * 8 + (lane & 3) * 2);
          };
          const auto product = [&](float(&c)[kKeyBlocks][4][4], std::uint32_t left, std::uint32_t right) {
#pragma unroll
            for (int k = 0; k < kBlocks; ++k) {
              Pair rows[kKeyBlocks][4];
#pragma unroll
              for (int m = 0; m < kKeyBlocks; ++m) {
                load_block(rows[m], Layout::at(left, by_row, warp_key + m * 16, 2 * k));
              }
#pragma unroll
              for (int s = 0; s < 2; ++s) {
                Pair columns[4];
                load_block(columns, Layout::at(right, by_column, step * kStep + s * 16, 2 * k));
#pragma unroll
                for (int m = 0; m < kKeyBlocks; ++m) {
                  Half<T>::multiply(c[m][2 * s], rows[m], columns[0], columns[1]);
                  Half<T>::multiply(c[m][2 * s + 1], rows[m], columns[2], columns[3]);
                }
              }
            }
          };
          const auto accumulate = [&](float(&c)[kKeyBlocks][kWidth / 8][4],
                                      const Pair(&left)[kKeyBlocks][2][4], std::uint32_t right) {
#pragma unroll
            for (int s = 0; s < 2; ++s) {
#pragma unroll
              for (int k = 0; k < kBlocks; ++k) {
                Pair rows[4];
                load_block_transposed(rows, Layout::at(right, by_row, step * kStep + s * 16, 2 * k));
#pragma unroll
                for (int m = 0; m < kKeyBlocks; ++m) {
                  Half<T>::multiply(c[m][2 * k], left[m][s], rows[0], rows[1]);
                  Half<T>::multiply(c[m][2 * k + 1], left[m][s], rows[2], rows[3]);
                }
              }
            }
          };

          Pair weight[kKeyBlocks][2][4];  // M_ij e_ij / D_i
          {
            float score[kKeyBlocks][4][4] = {};
            product(score, keys, queries);
#pragma unroll
            for (int s = 0; s < 4; ++s) {
              const float2 inverse = of_columns(inverse_of(stage), s);
              float2 base;
              if (kSoftmax) base = of_columns(max_of(stage), s);
#pragma unroll
              for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                  const float2 entry = Half<T>::unpack(m16[m][s / 2][(s % 2) * 2 + half]);
                  float x = score[m][s][half * 2], y = score[m][s][half * 2 + 1];
                  if (kSoftmax) {
                    x = entry.x == 0 ? 0 : exp2f(fmaf(x, exponent_scale, -base.x));
                    y = entry.y == 0 ? 0 : exp2f(fmaf(y, exponent_scale, -base.y));
                  }
                  weight[m][s / 2][(s % 2) * 2 + half] =
                      pack<T>(entry.x * inverse.x * x, entry.y * inverse.y * y);
                }
              }
            }
          }
          accumulate(grad_v, weight, grads);

          float grad_weight[kKeyBlocks][4][4];  // <grad_out_i, v_j> - delta_i
#pragma unroll
          for (int s = 0; s < 4; ++s) {
            const float2 minus_delta = of_columns(minus_delta_of(stage), s);
#pragma unroll
            for (int m = 0; m < kKeyBlocks; ++m) {
              grad_weight[m][s][0] = grad_weight[m][s][2] = minus_delta.x;
              grad_weight[m][s][1] = grad_weight[m][s][3] = minus_delta.y;
            }
          }
          product(grad_weight, values, grads);
          Pair grad_dot[kKeyBlocks][2][4];  // softmax: over the scale
#pragma unroll
          for (int s = 0; s < 4; ++s) {
            const float2 inverse = of_columns(inverse_of(stage), s);
#pragma unroll
            for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
              for (int half = 0; half < 2; ++half) {
                const int part = (s % 2) * 2 + half;
                float2 factor;
                if (kSoftmax) {
                  factor = Half<T>::unpack(weight[m][s / 2][part]);
                } else {
                  factor = Half<T>::unpack(m16[m][s / 2][part]);
                  factor.x *= inverse.x;
                  factor.y *= inverse.y;
                }
                grad_dot[m][s / 2][part] = pack<T>(factor.x * grad_weight[m][s][half * 2],
                                                   factor.y * grad_weight[m][s][half * 2 + 1]);
              }
            }
          }
#pragma unroll
          for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
            for (int s = 0; s < 2; ++s) {
              store_block<Shape::kQueries>(grad_dot[m][s], dots, warp_key + m * 16, step * 4 + s * 2, lane);
            }
          }
          accumulate(grad_k, grad_dot, queries);
        }
      }
      __syncthreads();

      // grad_q of this tile: a warp takes 16 queries and some of the channels, and contracts over all keys.
      {
        constexpr int kRowSplits = Shape::kQueries / 16, kColumnSplits = kWarps / kRowSplits;
        constexpr int kColumns = kWidth / kColumnSplits;
        const int row = (warp % kRowSplits) * 16, column = (warp / kRowSplits) * kColumns;
        const int valid = n - tile * Shape::kQueries - row;
        if (valid > 0) {
          constexpr int kGranule = kKeyBlocks * 16;  // inactive warps have written nothing
          const int end = min((n - here.first_key + kGranule - 1) / kGranule * kGranule, Shape::kKeys);
          float grad_q[kColumns / 8][4] = {};
#pragma unroll 4
          for (int j = 0; j < end; j += 16) {
            Pair left[4];
            load_block_transposed(left, DotLayout::at(dots, dot_by_column, j, row / 8));
#pragma unroll
            for (int k = 0; k < kColumns / 16; ++k) {
              Pair right[4];
              load_block_transposed(right, Layout::at(keys, by_row, j, column / 8 + 2 * k));
              Half<T>::multiply(grad_q[2 * k], left, right[0], right[1]);
              Half<T>::multiply(grad_q[2 * k + 1], left, right[2], right[3]);
            }
          }
          const float factor = (kSoftmax ? a.scale : 1.f) / scale;
          const int first = tile * Shape::kQueries + row;
          if (blocks_of_keys == 1) {
            const T* raw = a.relu ? row_start<T>(a.q, a.q_strides, here.batch, here.head, first) : nullptr;
            T* to = row_start<T>(b.grad_q, b.grad_q_strides, here.batch, here.head, first);
            store_rows<T>(grad_q, factor, factor, to, b.grad_q_strides.row, raw, a.q_strides.row, column,
                          valid, a.d, lane);
          } else {
            const std::int64_t share = here.first_key / Shape::kKeys;
            float* to =
                b.workspace + (((share * a.batch + here.batch) * a.heads + here.head) * n + first) * a.d;
#pragma unroll
            for (int s = 0; s < kColumns / 8; ++s) {
              const int at = column + s * 8 + (lane & 3) * 2;
              if (at >= a.d) continue;
#pragma unroll
              for (int half = 0; half < 2; ++half) {
                const int r = (lane >> 2) + half * 8;
                if (r >= valid) continue;
                *reinterpret_cast<float2*>(to + static_cast<std::int64_t>(r) * a.d + at) =
                    make_float2(grad_q[s][half * 2] * factor, grad_q[s][half * 2 + 1] * factor);
              }
            }
          }
        }
      }
    }

    if (active) {
      const int first = here.first_key + warp_key;
      const float factor = 1 / scale, key_factor = (kSoftmax ? a.scale : 1.f) / scale;
      const T* raw = a.relu ? row_start<T>(a.k, a.k_strides, here.batch, here.head, first) : nullptr;
      T* to_k = row_start<T>(b.grad_k, b.grad_k_strides, here.batch, here.head, first);
      T* to_v = row_start<T>(b.grad_v, b.grad_v_strides, here.batch, here.head, first);
#pragma unroll
      for (int m = 0; m < kKeyBlocks; ++m) {
        store_rows<T>(grad_v[m], factor, factor, to_v + m * 16 * b.grad_v_strides.row, b.grad_v_strides.row,
                      static_cast<const T*>(nullptr), 0, 0, n - first - m * 16, a.d_v, lane);
        store_rows<T>(grad_k[m], key_factor, key_factor, to_k + m * 16 * b.grad_k_strides.row,
                      b.grad_k_strides.row, raw == nullptr ? raw : raw + m * 16 * a.k_strides.row,
                      a.k_strides.row, 0, n - first - m * 16, a.d, lane);
      }
    }
  }
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
    const std::int64_t row = p * 2 / a.d, pair = row / a.num_nodes;
    const int column = static_cast<int>(p * 2 % a.d), head = static_cast<int>(pair % a.heads),
              batch = static_cast<int>(pair / a.heads);
    Pair x = pack<T>(sum.x, sum.y);
    const std::int64_t i = row % a.num_nodes;
    if (a.relu) {
      const T* raw = row_start<T>(a.q, a.q_strides, batch, head, i);
      x = where_positive<T>(x, *reinterpret_cast<const Pair*>(raw + column));
    }
    *reinterpret_cast<Pair*>(row_start<T>(b.grad_q, b.grad_q_strides, batch, head, i) + column) = x;
  }
}

}  // namespace

std::int64_t dense_backward_workspace(const DenseAttention& a) {
  const int widest = a.d > a.d_v ? a.d : a.d_v;
  const int shares = key_blocks(a, widest > 64 ? BackwardShape<128>::kKeys : BackwardShape<64>::kKeys);
  if (shares <= 1) return 0;
  return static_cast<std::int64_t>(shares) * a.batch * a.heads * a.num_nodes * a.d * 4;
}

cudaError_t dense_attention_backward(const DenseAttention& a, const DenseBackward& b, cudaStream_t stream) {
  int device = 0, multiprocessors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  return dispatch(a, [&]<class T, int kWidth, bool kSoftmax>() {
    using Shape = BackwardShape<kWidth>;
    const auto kernel = backward_kernel<T, kWidth, kSoftmax>;
    cudaError_t result =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
    if (result != cudaSuccess) return result;
    const int shares = key_blocks(a, Shape::kKeys);
    const std::int64_t items = static_cast<std::int64_t>(a.batch) * a.heads * shares;
    const auto blocks = static_cast<unsigned>(items < multiprocessors ? items : multiprocessors);
    kernel<<<blocks, kThreads, Shape::kSharedBytes, stream>>>(a, b, shares);
    result = cudaGetLastError();
    if (result != cudaSuccess || shares == 1) return result;
    sum_shares_kernel<T><<<multiprocessors * 8, 256, 0, stream>>>(a, b, shares);
    return cudaGetLastError();
  });
}

}  // namespace topomask
