// The `mask` engine for bfloat16 on tensor cores: one warp to a row and head, sixteen gathered rows at a
// time.
//
// A product of a 16 x 16 by a 16 x 8 matrix is far more than a row needs: but it costs one instruction, takes
// the gathered numbers as they come from memory, and hands every lane a sum over all of them, where the
// arithmetic units would unpack, multiply and exchange number by number. What bounds these kernels is the
// gather alone.
//
// A lane is (r, c) = (lane / 4, lane % 4). "Sixteen rows" are slots 0..15, nonzeros of the row in order.
//  - Scores: A = gathered rows (slot x channel), lane (r, c) holds slots r and r + 8, channels 8c..8c+7 of
//  each 32.
//    B = the query in every even column and, for ReLU features, ones in every odd one: the product with
//    max(k, 0) + epsilon needs the sum of max(k, 0) as well.
//  - Sums: A = gathered rows transposed (channel x slot), lane (r, c) holds channels 8r..8r+7 of slots 2c, 2c
//  + 1,
//    2c + 8 and 2c + 9. B = the weights in every even column, and what rounding them to bfloat16 lost in
//    every odd one: weights count with 16 bits, while products are exact and sums are in float32.
// Which channels and slots an index of the product stands for is free, as long as A and B agree; it is chosen
// so that every load is of 16 bytes.
#pragma once

#include "attention/cuda/row_attention_device.cuh"

namespace topomask::row_attention {

namespace tensor {

using T = __nv_bfloat16;

constexpr int kThreads = 256, kWarps = kThreads / 32, kSlots = 16;
constexpr unsigned kAll = 0xffffffffu;
constexpr unsigned kOnes = 0x3f803f80u;  // two bfloat16

// How a launch spreads items over blocks: runs of consecutive ones, whose neighbours overlap in the cache.
struct Blocks {
  std::int64_t item_blocks = 0;
  int items_per_block = 128;  // at most kThreads
  bool segments = false;
};

__device__ inline void multiply(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline uint4 load_vector(const T* address) {
  return __ldg(reinterpret_cast<const uint4*>(address));
}

template <bool kRelu>
__device__ inline uint4 feature_bits(uint4 raw) {
  return kRelu ? Vector<T>::relu(raw) : raw;
}

// Which (row, head) a warp works on. The items of a block are looked up once, by all its threads.
struct Places {
  Item items[kThreads];
};

struct Warp {
  int lane, r, c, warp;
  std::int64_t pair, batch, head, first_item;
  int items;

  __device__ Warp(const Blocks& blocks, const RowAttentionShape& shape, const DeviceRows& rows,
                  Places& places) {
    lane = static_cast<int>(threadIdx.x) % 32;
    warp = static_cast<int>(threadIdx.x) / 32;
    r = lane / 4;
    c = lane % 4;
    pair = blockIdx.x / blocks.item_blocks;
    batch = pair / shape.heads;
    head = pair % shape.heads;
    first_item = blockIdx.x % blocks.item_blocks * blocks.items_per_block;
    items = blocks.items_per_block;
    if (threadIdx.x < items)
      places.items[threadIdx.x] = item_at(rows, first_item + threadIdx.x, blocks.segments);
    __syncthreads();
  }
};

// The rows of one operand, from the first channel of this lane's on: 8 of every 32 for scores, 8 of every 64
// for sums.
struct Operand {
  const T* rows;
  int step;

  __device__ Operand(const Rows4& all, const Warp& at, int channel)
      : rows(head_rows<const T>(all, at.batch, at.head) + channel), step(static_cast<int>(all.node_step)) {}
  __device__ const T* operator[](std::int64_t row) const { return rows + row * step; }
};

// B of the scores: a row of channels in even columns, and ones in odd ones where that is asked for.
template <int kWide>
struct ScoreRow {
  unsigned word[2 * kWide][4];

  __device__ void load(const T* row, const Warp& at, bool relu, bool with_ones) {
#pragma unroll
    for (int i = 0; i < 2 * kWide; ++i) {
      uint4 raw = load_vector(row + 32 * i);
      if (relu) raw = Vector<T>::relu(raw);
      if (with_ones && at.r % 2 == 1) raw = {kOnes, kOnes, kOnes, kOnes};
      word[i][0] = raw.x;
      word[i][1] = raw.y;
      word[i][2] = raw.z;
      word[i][3] = raw.w;
    }
  }
};

// The gathered rows of slots r and r + 8.
template <int kWide>
struct ScoreRows {
  uint4 low[2 * kWide], high[2 * kWide];

  __device__ void load(const Operand& rows, const Warp& at, std::int32_t own_col) {
    const T* first = rows[__shfl_sync(kAll, own_col, at.r)];
    const T* second = rows[__shfl_sync(kAll, own_col, at.r + 8)];
#pragma unroll
    for (int i = 0; i < 2 * kWide; ++i) {
      low[i] = load_vector(first + 32 * i);
      high[i] = load_vector(second + 32 * i);
    }
  }
  // d[0], d[2]: products of slots r and r + 8 with the even columns of `row`; d[1], d[3]: with the odd ones.
  template <bool kRelu>
  __device__ void multiply_with(const ScoreRow<kWide>& row, float (&d)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] = 0;
#pragma unroll
    for (int i = 0; i < 2 * kWide; ++i) {
      const uint4 a = feature_bits<kRelu>(low[i]), b = feature_bits<kRelu>(high[i]);
      multiply(d, a.x, b.x, a.y, b.y, row.word[i][0], row.word[i][1]);
      multiply(d, a.z, b.z, a.w, b.w, row.word[i][2], row.word[i][3]);
    }
  }
};

// The gathered rows of slots 2c, 2c + 1, 2c + 8 and 2c + 9.
template <int kWide>
struct SumRows {
  uint4 row[kWide][4];

  __device__ void load(const Operand& rows, const Warp& at, std::int32_t own_col) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const T* own = rows[__shfl_sync(kAll, own_col, 2 * at.c + k % 2 + k / 2 * 8)];
#pragma unroll
      for (int i = 0; i < kWide; ++i) row[i][k] = load_vector(own + 64 * i);
    }
  }
};

// Weights of the slots as B of the sums: even columns rounded, odd ones what that lost.
struct SlotWeights {
  unsigned low, high;

  // `own`: the weight of slot lane % 16.
  __device__ SlotWeights(float own, const Warp& at) {
    const float rounded = __bfloat162float(__float2bfloat16_rn(own));
    const unsigned both = Vector<T>::bits(__floats2bfloat162_rn(own - rounded, rounded));
    const unsigned half = at.r % 2 == 0 ? 0x7632u : 0x5410u;
    const auto slot = [&](int s) { return __shfl_sync(kAll, both, s); };
    low = __byte_perm(slot(2 * at.c), slot(2 * at.c + 1), half);
    high = __byte_perm(slot(2 * at.c + 8), slot(2 * at.c + 9), half);
  }
};

// sum over the nonzeros of weight times row. Lane (r, c) ends with channels 8r..8r+7 of every 64, whatever
// its c.
template <int kWide>
struct Sums {
  float part[kWide][4][4] = {};

  template <bool kRelu>
  __device__ void add(const SumRows<kWide>& rows, const SlotWeights& weights) {
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      uint4 x[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) x[k] = feature_bits<kRelu>(rows.row[i][k]);
      add_pair(i, 0, x[0].x, x[1].x, x[2].x, x[3].x, weights);
      add_pair(i, 1, x[0].y, x[1].y, x[2].y, x[3].y, weights);
      add_pair(i, 2, x[0].z, x[1].z, x[2].z, x[3].z, weights);
      add_pair(i, 3, x[0].w, x[1].w, x[2].w, x[3].w, weights);
    }
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (auto& wide : part) {
#pragma unroll
      for (auto& pair : wide) {
#pragma unroll
        for (float& x : pair) x *= factor;
      }
    }
  }
  __device__ void finish(int i, float (&sum)[8]) const {
#pragma unroll
    for (int p = 0; p < 4; ++p) {
      sum[2 * p] = part[i][p][0] + part[i][p][1];
      sum[2 * p + 1] = part[i][p][2] + part[i][p][3];
    }
  }

 private:
  // One word of each slot: two channels, which are rows r and r + 8 of A.
  __device__ void add_pair(int i, int p, unsigned x0, unsigned x1, unsigned x2, unsigned x3,
                           const SlotWeights& weights) {
    multiply(part[i][p], __byte_perm(x0, x1, 0x5410), __byte_perm(x0, x1, 0x7632),
             __byte_perm(x2, x3, 0x5410), __byte_perm(x2, x3, 0x7632), weights.low, weights.high);
  }
};

// Sums over the sixteen slots, one to a lane and once more in lanes 16 to 31.
__device__ inline float sum_slots(float x) {
  return sum_lanes<kSlots>(x);
}

// From the lanes of the scores to the lane of each slot.
__device__ inline float to_slot(float first, float second, const Warp& at) {
  const int source = at.lane % 8 * 4;
  const float low = __shfl_sync(kAll, first, source), high = __shfl_sync(kAll, second, source);
  return at.lane % 16 < 8 ? low : high;
}

template <Mode kMode, int kWide, int kMinBlocks>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    forward_rows(const __grid_constant__ RowAttentionForward pass, const __grid_constant__ Blocks blocks) {
  constexpr bool kRelu = kMode == Mode::relu;
  constexpr int kColumns = 64 * kWide;
  __shared__ Places places;
  const RowAttentionShape& shape = pass.shape;
  const Warp at(blocks, shape, pass.mask, places);
  const Operand queries(pass.q, at, 8 * at.c), keys(pass.k, at, 8 * at.c), values(pass.v, at, 8 * at.r);
  const float* value = static_cast<const float*>(pass.value) + at.head * pass.value_step;
  float* dots = pass.dot == nullptr ? nullptr : static_cast<float*>(pass.dot) + at.pair * pass.mask.nnz;
  const float epsilon = static_cast<float>(shape.epsilon), scale = static_cast<float>(shape.scale);
  const int slot = at.lane % kSlots;

  for (int which = at.warp; which < at.items; which += kWarps) {
    const Item item = places.items[which];
    if (!item.mine) continue;
    ScoreRow<kWide> query;
    query.load(queries[item.row], at, kRelu, kRelu);
    float constant = 0;  // epsilon times the sum of phi(q)
    if constexpr (kRelu) {
      // Even columns hold max(q, 0): with ones in A, the product is their sum. Odd ones count the channels.
      float d[4] = {};
#pragma unroll
      for (int i = 0; i < 2 * kWide; ++i) {
        multiply(d, kOnes, kOnes, kOnes, kOnes, query.word[i][0], query.word[i][1]);
        multiply(d, kOnes, kOnes, kOnes, kOnes, query.word[i][2], query.word[i][3]);
      }
      constant = epsilon * (d[0] + epsilon * d[1]);
    }
    Sums<kWide> sums;
    float normaliser = 0, row_max = -INFINITY;
    std::int32_t col = item.row;  // slots without a nonzero fetch a row that is fetched anyway
    float mask = 0;
    int next = slot;
    if (next < item.count) col = pass.mask.col[item.first + next], mask = value[item.first + next];
    for (int done = 0; done < item.count; done += kSlots) {
      const bool valid = next < item.count;
      const std::int64_t entry = item.first + next;
      const float own_mask = valid ? mask : 0.0f;
      ScoreRows<kWide> k_rows;
      SumRows<kWide> v_rows;
      k_rows.load(keys, at, col);
      v_rows.load(values, at, col);
      next += kSlots;
      if (next < item.count) col = pass.mask.col[item.first + next], mask = value[item.first + next];
      float d[4];
      k_rows.template multiply_with<kRelu>(query, d);
      const float product =
          kRelu ? to_slot(d[0] + epsilon * d[1] + constant, d[2] + epsilon * d[3] + constant, at)
                : to_slot(d[0], d[2], at);
      if (dots != nullptr && valid && at.lane < kSlots) dots[entry] = product;
      float weight = product * own_mask;
      if constexpr (kMode == Mode::softmax) {
        const float score = valid ? product * scale : -INFINITY;
        const float new_max = fmaxf(row_max, max_lanes<kSlots>(score));
        if (new_max > row_max) {
          const float shrink = expf(row_max - new_max);
          normaliser *= shrink;
          sums.scale(shrink);
          row_max = new_max;
        }
        weight = expf(score - row_max) * own_mask;
      }
      if (!valid) weight = 0;
      normaliser += weight;
      sums.template add<false>(v_rows, SlotWeights(weight, at));
    }
    normaliser = sum_slots(normaliser);
    const float inverse = fabsf(normaliser) > static_cast<float>(shape.guard) ? 1 / normaliser : 0.0f;
    float* found =
        segment_row_of<float>(pass.workspace, pass.mask, at.pair, at.first_item + which, kColumns + 2);
    if (at.lane == 0) {
      if (blocks.segments) {
        found[kColumns] = normaliser;
        found[kColumns + 1] = row_max;
      } else {
        static_cast<float*>(pass.inverse)[at.pair * pass.mask.num_rows + item.row] = inverse;
        if constexpr (kMode == Mode::softmax)
          static_cast<float*>(pass.row_max)[at.pair * pass.mask.num_rows + item.row] = row_max;
      }
    }
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const int column = 64 * i + 8 * at.r;
      if (at.c != 0) continue;
      float sum[8];
      sums.finish(i, sum);
      if (blocks.segments) {
#pragma unroll
        for (int e = 0; e < 8; ++e) found[column + e] = sum[e];
        continue;
      }
#pragma unroll
      for (float& x : sum) x *= inverse;
      T* out = head_rows<T>(pass.out, at.batch, at.head) + item.row * pass.out.node_step + column;
      *reinterpret_cast<uint4*>(out) = Vector<T>::pack(sum);
    }
  }
}

// Writes a sum of gathered features, as the gradient of the features at `x`: through the ReLU, or to the
// segment's place in the workspace.
template <bool kRelu, int kWide>
__device__ inline void store_sums(const Sums<kWide>& sums, const Warp& at, float constant, float* found,
                                  const T* x, T* out) {
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const int column = 64 * i + 8 * at.r;
    if (at.c != 0) continue;
    float sum[8];
    sums.finish(i, sum);
#pragma unroll
    for (float& s : sum) s += constant;
    if (found != nullptr) {
#pragma unroll
      for (int e = 0; e < 8; ++e) found[column + e] = sum[e];
      continue;
    }
    if constexpr (kRelu) {
      float own[8];
      Vector<T>::unpack(load_vector(x + column), own);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[e] = own[e] >= 0 ? sum[e] : 0.0f;
    }
    *reinterpret_cast<uint4*>(out + column) = Vector<T>::pack(sum);
  }
}

template <Mode kMode, int kWide, int kMinBlocks>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    backward_rows(const __grid_constant__ RowAttentionBackward pass, const __grid_constant__ Blocks blocks) {
  constexpr bool kRelu = kMode == Mode::relu;
  constexpr int kColumns = 64 * kWide;
  __shared__ Places places;
  const RowAttentionShape& shape = pass.shape;
  const Warp at(blocks, shape, pass.mask, places);
  const Operand grads(pass.grad_out, at, 8 * at.c), keys(pass.k, at, 8 * at.r), values(pass.v, at, 8 * at.c);
  const T* grad_rows = head_rows<const T>(pass.grad_out, at.batch, at.head);
  const T* out_rows = head_rows<const T>(pass.out, at.batch, at.head);
  const float* value = static_cast<const float*>(pass.value) + at.head * pass.value_step;
  const std::int64_t pair_entries = at.pair * pass.mask.nnz;
  const float* dots = static_cast<const float*>(pass.dot) + pair_entries;
  float* grad_value =
      pass.grad_value == nullptr ? nullptr : static_cast<float*>(pass.grad_value) + pair_entries;
  float2* weights = static_cast<float2*>(pass.weights) + pair_entries;
  const float epsilon = static_cast<float>(shape.epsilon), scale = static_cast<float>(shape.scale);
  const int slot = at.lane % kSlots;

  for (int which = at.warp; which < at.items; which += kWarps) {
    const Item item = places.items[which];
    if (!item.mine) continue;
    ScoreRow<kWide> grad;
    grad.load(grads[item.row], at, false, false);
    float along_out = 0;  // <g, out>: what the normaliser takes away
#pragma unroll
    for (int i = 0; i < kWide; ++i) {
      const int column = 64 * i + 2 * at.lane;
      const auto pair_at = [&](const T* row) {
        return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(row + column));
      };
      const float2 g = pair_at(grad_rows + item.row * pass.grad_out.node_step);
      const float2 out = pair_at(out_rows + item.row * pass.out.node_step);
      along_out += g.x * out.x + g.y * out.y;
    }
    along_out = sum_lanes<32>(along_out);
    const std::int64_t row_at = at.pair * pass.mask.num_rows + item.row;
    const float inverse = static_cast<const float*>(pass.inverse)[row_at];
    const float row_max = kMode == Mode::softmax ? static_cast<const float*>(pass.row_max)[row_at] : 0.0f;
    Sums<kWide> sums;
    float weight_sum = 0;
    std::int32_t col = item.row;
    float mask = 0, score = 0;
    int next = slot;
    const auto fetch = [&] {
      const std::int64_t entry = item.first + next;
      if (next < item.count) col = pass.mask.col[entry], mask = value[entry], score = dots[entry];
    };
    fetch();
    for (int done = 0; done < item.count; done += kSlots) {
      const bool valid = next < item.count;
      const std::int64_t entry = item.first + next;
      const float own_mask = mask, own_score = kMode == Mode::softmax ? expf(score * scale - row_max) : score;
      ScoreRows<kWide> v_rows;
      SumRows<kWide> k_rows;
      v_rows.load(values, at, col);
      k_rows.load(keys, at, col);
      next += kSlots;
      fetch();
      float d[4];
      v_rows.template multiply_with<false>(grad, d);
      const float grad_score = (to_slot(d[0], d[2], at) - along_out) * inverse;  // dL / d(M_ij e_ij)
      const float key_weight =
          valid ? grad_score * own_mask * (kMode == Mode::softmax ? own_score * scale : 1.0f) : 0.0f;
      if (valid && at.lane < kSlots) {
        if (grad_value != nullptr) grad_value[entry] = grad_score * own_score;
        weights[entry] = {key_weight, own_mask * own_score * inverse};
      }
      weight_sum += key_weight;
      sums.template add<kRelu>(k_rows, SlotWeights(key_weight, at));
    }
    const float constant = kRelu ? epsilon * sum_slots(weight_sum) : 0.0f;
    float* found = blocks.segments ? segment_row_of<float>(pass.workspace, pass.mask, at.pair,
                                                           at.first_item + which, kColumns)
                                   : nullptr;
    store_sums<kRelu>(sums, at, constant, found,
                      head_rows<const T>(pass.q, at.batch, at.head) + item.row * pass.q.node_step,
                      head_rows<T>(pass.grad_q, at.batch, at.head) + item.row * pass.grad_q.node_step);
  }
}

template <Mode kMode, int kWide, int kMinBlocks>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    backward_columns(const __grid_constant__ RowAttentionBackward pass,
                     const __grid_constant__ Blocks blocks) {
  constexpr bool kRelu = kMode == Mode::relu;
  constexpr int kColumns = 64 * kWide;
  __shared__ Places places;
  const RowAttentionShape& shape = pass.shape;
  const Warp at(blocks, shape, pass.columns, places);
  const Operand queries(pass.q, at, 8 * at.r), grads(pass.grad_out, at, 8 * at.r);
  const float2* weights = static_cast<const float2*>(pass.weights) + at.pair * pass.mask.nnz;
  const float epsilon = static_cast<float>(shape.epsilon);

  for (int which = at.warp; which < at.items; which += kWarps) {
    const Item item = places.items[which];
    if (!item.mine) continue;
    Sums<kWide> key_sums, value_sums;
    float weight_sum = 0;
    std::int32_t row = item.row;
    float2 weight = {0, 0};
    int next = at.lane % kSlots;
    const auto fetch = [&] {
      weight = {0, 0};
      if (next >= item.count) return;
      row = pass.columns.col[item.first + next];
      weight = weights[pass.columns.entry[item.first + next]];
    };
    fetch();
    for (int done = 0; done < item.count; done += kSlots) {
      const float2 own = weight;
      SumRows<kWide> q_rows, g_rows;
      q_rows.load(queries, at, row);
      g_rows.load(grads, at, row);
      next += kSlots;
      fetch();
      weight_sum += own.x;
      key_sums.template add<kRelu>(q_rows, SlotWeights(own.x, at));
      value_sums.template add<false>(g_rows, SlotWeights(own.y, at));
    }
    const float constant = kRelu ? epsilon * sum_slots(weight_sum) : 0.0f;
    float* found = blocks.segments ? segment_row_of<float>(pass.workspace, pass.columns, at.pair,
                                                           at.first_item + which, 2 * kColumns)
                                   : nullptr;
    store_sums<kRelu>(key_sums, at, constant, found,
                      head_rows<const T>(pass.k, at.batch, at.head) + item.row * pass.k.node_step,
                      head_rows<T>(pass.grad_k, at.batch, at.head) + item.row * pass.grad_k.node_step);
    store_sums<false>(value_sums, at, 0.0f, found == nullptr ? nullptr : found + kColumns, nullptr,
                      head_rows<T>(pass.grad_v, at.batch, at.head) + item.row * pass.grad_v.node_step);
  }
}

}  // namespace tensor

}  // namespace topomask::row_attention
