// The backward pass for q, k and v: what one block of threads does.
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
// while it computes. Accumulators take half of the registers; what else must be remembered for longer than a
// product lives in shared memory.
#pragma once

#include "attention/cuda/dense_attention_backward_rows.cuh"

namespace topomask::dense {

template <class T, int kWidth, bool kSoftmax>
struct BackwardBlock : BackwardRows<T, kWidth, kSoftmax> {
  using Rows = BackwardRows<T, kWidth, kSoftmax>;
  using Shape = BackwardShape<kWidth>;
  using Layout = Tile<kWidth>;
  using DotLayout = Tile<Shape::kQueries>;
  static constexpr int kWarps = Shape::kWarps, kStep = Shape::kStep;
  static constexpr int kKeyBlocks = Shape::kKeyBlocks, kBlocks = kWidth / 16, kKeyGroups = Rows::kKeyGroups;
  using Scores = float[kKeyBlocks][4][4];              // of a step
  using Weights = Pair[kKeyBlocks][2][4];              // the same numbers as left operands
  using Gradients = float[kKeyBlocks][kWidth / 8][4];  // of this warp's keys
  using Rows::a, Rows::b, Rows::shared, Rows::item, Rows::thread, Rows::warp_key, Rows::kScaled;

  __device__ void load_mask(Weights& m16, int number, int step) const {
    const int side = PackedMask::blocks_per_side(a.num_nodes);
    const uint4* mask =
        item(number).mask + (warp_key() / 16 * side + step * (kStep / 16)) * 32 + Rows::lane();
#pragma unroll
    for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
      for (int c = 0; c < 2; ++c) PackedMask::load<true>(m16[m][c], mask + (m * side + c) * 32);
    }
  }

  // One step: rows of `left` that belong to this warp's keys by 32 rows of `right`.
  __device__ static void product(Scores& c, std::uint32_t left, std::uint32_t right, int step, int lane) {
    const std::uint32_t by_row = Layout::lane_by_row(lane), by_column = Layout::lane_by_column(lane);
    const int key = warp_key();
#pragma unroll
    for (int k = 0; k < kBlocks; ++k) {
      Pair rows[kKeyBlocks][4];
#pragma unroll
      for (int m = 0; m < kKeyBlocks; ++m) load_block(rows[m], Layout::at(left, by_row, key + m * 16, 2 * k));
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
  }

  // Keys by queries times queries by channels.
  __device__ static void accumulate(Gradients& c, const Weights& left, std::uint32_t right, int step,
                                    int lane) {
    const std::uint32_t by_row = Layout::lane_by_row(lane);
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
  }

  // This warp's keys against 32 queries. Columns of the accumulators are queries: lane t has 2t and 2t+1 of
  // every eight.
  __device__ void score_step(Gradients& grad_k, Gradients& grad_v, Weights& m16, int number, int stage,
                             int step, int next_step) const {
    const int lane = Rows::lane();
    const auto& keys = shared.keys[number & 1];
    const auto& queries = shared.queries[stage];
    const auto& statistics = shared.statistics[stage];
    const auto of_columns = [&](const float* statistic, int s) {
      return *reinterpret_cast<const float2*>(statistic + step * kStep + s * 8 + (lane & 3) * 2);
    };

    // Softmax divides by the scale of a query where it forms exponents and gradients of dot products; else
    // 1 / D_i carries it.
    constexpr bool kOwnScale = kSoftmax && kScaled;
    Weights weight;  // M_ij e_ij / D_i
    {
      Scores score = {};
      product(score, shared_address(keys.k), shared_address(queries.q), step, lane);
      const float exponent_scale = a.rule.scale * kLog2e;
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        const float2 inverse = of_columns(statistics.inverse, s);
        float2 base, exponent_scales = {exponent_scale, exponent_scale};
        if (kSoftmax) base = of_columns(statistics.max, s);
        if (kOwnScale) {
          const float2 inverse_scale = of_columns(statistics.inverse_scale, s);
          exponent_scales = {exponent_scale * inverse_scale.x, exponent_scale * inverse_scale.y};
        }
#pragma unroll
        for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int part = (s % 2) * 2 + half;
            const float2 entry = Half<T>::unpack(m16[m][s / 2][part]);
            float x = score[m][s][half * 2], y = score[m][s][half * 2 + 1];
            if (kSoftmax) {
              x = entry.x == 0 ? 0 : fast_exp2(fmaf(x, exponent_scales.x, -base.x));
              y = entry.y == 0 ? 0 : fast_exp2(fmaf(y, exponent_scales.y, -base.y));
            }
            weight[m][s / 2][part] = pack<T>(entry.x * inverse.x * x, entry.y * inverse.y * y);
          }
        }
      }
    }
    accumulate(grad_v, weight, shared_address(queries.grad_out), step, lane);
    __syncwarp();  // keeps the next product from starting early: both at once would not fit the registers

    Scores grad_weight;  // <grad_out_i, v_j> - delta_i
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float2 minus_delta = of_columns(statistics.minus_delta, s);
#pragma unroll
      for (int m = 0; m < kKeyBlocks; ++m) {
        grad_weight[m][s][0] = grad_weight[m][s][2] = minus_delta.x;
        grad_weight[m][s][1] = grad_weight[m][s][3] = minus_delta.y;
      }
    }
    product(grad_weight, shared_address(keys.v), shared_address(queries.grad_out), step, lane);

    Weights grad_dot;  // over the scale of its query; softmax: and over that of all
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float2 inverse = of_columns(kOwnScale ? statistics.inverse_scale : statistics.inverse, s);
#pragma unroll
      for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int part = (s % 2) * 2 + half;
          float2 factor = Half<T>::unpack(kSoftmax ? weight[m][s / 2][part] : m16[m][s / 2][part]);
          if (!kSoftmax || kOwnScale) factor = {factor.x * inverse.x, factor.y * inverse.y};
          grad_dot[m][s / 2][part] =
              pack<T>(factor.x * grad_weight[m][s][half * 2], factor.y * grad_weight[m][s][half * 2 + 1]);
        }
      }
    }
    // The mask of the next step is on its way while this one is finished.
    if (next_step >= 0) load_mask(m16, number, next_step);
    const std::uint32_t dots = shared_address(shared.grad_dots);
    const int key = warp_key();
#pragma unroll
    for (int m = 0; m < kKeyBlocks; ++m) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        store_block<Shape::kQueries>(grad_dot[m][s], dots, key + m * 16, step * 4 + s * 2, lane);
      }
    }
    accumulate(grad_k, grad_dot, shared_address(queries.q), step, lane);
  }

  // grad_q of a tile: a warp takes 16 queries and some of the channels, and contracts over all keys.
  __device__ void finish_queries(int number, int stage, int tile) const {
    constexpr int kRowSplits = Shape::kQueries / 16, kColumns = kWidth / (kWarps / kRowSplits);
    const int lane = Rows::lane(), warp = Rows::warp();
    const int row = (warp % kRowSplits) * 16, column = (warp / kRowSplits) * kColumns;
    const int first = tile * Shape::kQueries + row, valid = a.num_nodes - first;
    if (valid <= 0) return;
    const std::uint32_t dots =
        DotLayout::at(shared_address(shared.grad_dots), DotLayout::lane_by_column(lane), 0, row / 8);
    const std::uint32_t keys = shared_address(shared.keys[number & 1].k), by_row = Layout::lane_by_row(lane);

    float grad_q[kColumns / 8][4] = {};
    // Operands of the next 16 keys are loaded while these are multiplied.
    Pair left[2][4], right[2][kColumns / 16][4];
    const auto load = [&](int j, int slot) {
      load_block_transposed(left[slot], dots + j * DotLayout::kRowBytes);
#pragma unroll
      for (int k = 0; k < kColumns / 16; ++k) {
        load_block_transposed(right[slot][k], Layout::at(keys, by_row, j, column / 8 + 2 * k));
      }
    };
    const auto multiply = [&](int slot) {
#pragma unroll
      for (int k = 0; k < kColumns / 16; ++k) {
        Half<T>::multiply(grad_q[2 * k], left[slot], right[slot][k][0], right[slot][k][1]);
        Half<T>::multiply(grad_q[2 * k + 1], left[slot], right[slot][k][2], right[slot][k][3]);
      }
    };
    // Up to here warps are active, in units of 32 keys.
    const int end = min((a.num_nodes - item(number).first_key + 31) / 32 * 32, Shape::kKeys);
    load(0, 0);
#pragma unroll 2
    for (int j = 0; j < end; j += 32) {
      load(j + 16, 1);
      multiply(0);
      if (j + 32 < end) load(j + 32, 0);
      multiply(1);
    }

    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = (kSoftmax ? a.rule.scale : 1.f) / weight_scale<T>(a.num_nodes);
      if (kScaled) factor[half] /= shared.statistics[stage].inverse_scale[row + (lane >> 2) + half * 8];
    }
    float* share = item(number).share;
    if (share == nullptr) {
      T* to = item(number).grad_q + first * b.grad_q_strides.row;
      const auto store = [&](const auto& through) {
        store_rows<T>(grad_q, factor[0], factor[1], to, b.grad_q_strides.row, column, valid, a.d, lane,
                      through);
      };
      if (!a.rule.is_relu()) {
        store(AsTheyAre());
      } else if constexpr (kScaled) {
        store(ThroughInputs<T>{item(number).q + first * a.q_strides.row, a.q_strides.row});
      } else {
        store(ThroughMarkedFeatures<T, kWidth>{shared_address(shared.queries[stage].q), row,
                                               ReluFeatures<T>(a.rule.epsilon)});
      }
      return;
    }
    share += static_cast<std::int64_t>(first) * a.d + column + (lane & 3) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = (lane >> 2) + half * 8;
#pragma unroll
      for (int s = 0; s < kColumns / 8; ++s) {
        if (r >= valid || column + s * 8 >= a.d) continue;
        *reinterpret_cast<float2*>(share + r * a.d + s * 8) =
            make_float2(grad_q[s][half * 2] * factor[half], grad_q[s][half * 2 + 1] * factor[half]);
      }
    }
  }

  __device__ void finish_keys(const Gradients& grad_k, const Gradients& grad_v, int number) const {
    const int lane = Rows::lane(), key = warp_key();
    const int valid = a.num_nodes - item(number).first_key - key;
    const float factor = 1 / weight_scale<T>(a.num_nodes),
                key_factor = kSoftmax ? factor * a.rule.scale : factor;
    T* to_k = item(number).grad_k + key * b.grad_k_strides.row;
    T* to_v = item(number).grad_v + key * b.grad_v_strides.row;
#pragma unroll
    for (int m = 0; m < kKeyBlocks;
         ++m, to_k += 16 * b.grad_k_strides.row, to_v += 16 * b.grad_v_strides.row) {
      const int rows = valid - m * 16;
      store_rows<T>(grad_v[m], factor, factor, to_v, b.grad_v_strides.row, 0, rows, a.d_v, lane);
      if (a.rule.is_relu()) {
        store_rows<T>(grad_k[m], key_factor, key_factor, to_k, b.grad_k_strides.row, 0, rows, a.d, lane,
                      ThroughMarkedFeatures<T, kWidth>{shared_address(shared.keys[number & 1].k),
                                                       key + m * 16, ReluFeatures<T>(a.rule.epsilon)});
      } else {
        store_rows<T>(grad_k[m], key_factor, key_factor, to_k, b.grad_k_strides.row, 0, rows, a.d, lane);
      }
    }
  }

  __device__ int num_tiles() const {
    return (opaque(a.num_nodes) + Shape::kQueries - 1) / Shape::kQueries;
  }
  // Groups of the next keys and values that are copied with a tile.
  __device__ int slice_begin(int tile) const {
    return min(tile * ((kKeyGroups + num_tiles() - 1) / num_tiles()), kKeyGroups);
  }
  // The number-th item of this block of threads, among those of all.
  __device__ static int index_of(int number) {
    return static_cast<int>(blockIdx.x) + opaque(number) * static_cast<int>(gridDim.x);
  }

  __device__ void run(int blocks_of_keys) const {
    constexpr int kSteps = Shape::kQueries / kStep;
    const auto exists = [&](int number) {
      return index_of(number) < opaque(a.batch) * a.heads * blocks_of_keys;
    };
    if (thread() == 0) Rows::describe_item(0, index_of(0), blocks_of_keys);
    __syncthreads();
    Rows::copy_keys(0, 0, kKeyGroups);
    Rows::copy_queries(0, 0, 0);
    finish_issuing_copies();

    int stage = 0;
#pragma unroll 1
    for (int number = 0; exists(number); ++number) {
      if (exists(number + 1) && thread() == 0)
        Rows::describe_item(number + 1, index_of(number + 1), blocks_of_keys);
      const auto active = [&] { return item(number).first_key + warp_key() / 32 * 32 < a.num_nodes; };
      Gradients grad_k = {}, grad_v = {};
      Weights m16;
      if (active()) load_mask(m16, number, 0);

#pragma unroll 1
      for (int tile = 0; tile < num_tiles(); ++tile, stage ^= 1) {
        wait_for_copies();
        Rows::prepare_queries(number, stage, tile);
        if (a.rule.is_relu()) {
          // What the previous tile brought: the first keys of all at once, then slices, the last of which
          // comes with the last tile of the item before.
          if (tile == 0) Rows::map_keys(number, number == 0 ? 0 : slice_begin(num_tiles() - 1), kKeyGroups);
          if (tile > 0 && exists(number + 1))
            Rows::map_keys(number + 1, slice_begin(tile - 1), slice_begin(tile));
        }
        __syncthreads();
        if (tile + 1 < num_tiles()) {
          Rows::copy_queries(number, stage ^ 1, tile + 1);
        } else if (exists(number + 1)) {
          Rows::copy_queries(number + 1, stage ^ 1, 0);
        }
        if (exists(number + 1)) Rows::copy_keys(number + 1, slice_begin(tile), slice_begin(tile + 1));
        finish_issuing_copies();

        if (active()) {
#pragma unroll 1
          for (int step = 0; step < kSteps; ++step) {
            const int next = tile * kSteps + step + 1;
            score_step(grad_k, grad_v, m16, number, stage, step, next < num_tiles() * kSteps ? next : -1);
          }
        }
        __syncthreads();
        finish_queries(number, stage, tile);
      }
      if (active()) finish_keys(grad_k, grad_v, number);
    }
  }
};

}  // namespace topomask::dense
