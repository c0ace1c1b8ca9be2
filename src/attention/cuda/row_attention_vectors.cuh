// The fast path of the `mask` engine: rows of one 16-byte vector a lane, kLanes lanes to a row and head.
//
// What bounds it is the gather of rows through the first-level cache and the instructions that unpack them.
// Hence blocks of consecutive rows (in the pattern's order), whose neighbours overlap; kBatch rows fetched
// before the first is used; and dot products summed over the lanes all at once, after which each lane holds
// one of them and does what there is to do for a nonzero alone.
#pragma once

#include "attention/cuda/row_attention_device.cuh"

namespace topomask::row_attention {

constexpr int kThreads = 256;

// Nonzeros in flight, whether both of their rows are fetched before the first is used, and blocks to a
// multiprocessor (which bounds the registers).
template <int kBatchSize, bool kFetchBoth, int kBlocks>
struct Tune {
  static constexpr int kBatch = kBatchSize, kMinBlocks = kBlocks;
  static constexpr bool kBoth = kFetchBoth;
};

// How a launch spreads items and heads over blocks.
struct Spread {
  int items_per_block = 128;
  int heads_per_warp = 1;  // neighbouring groups of lanes work on so many heads of one row
  std::int64_t item_blocks = 0;
  bool segments = false;
};

// One group of lanes: where it stands in the grid.
template <int kLanes, int kBatchSize>
struct Group {
  static constexpr int kBatch = kLanes < kBatchSize ? kLanes : kBatchSize;
  static constexpr int kLanesPerNonzero = kLanes / kBatch;  // lanes that hold the same nonzero

  int lane, own;  // own: the nonzero of a batch that this lane holds
  bool speaks;    // first of the lanes that hold it
  std::int64_t batch, head, pair;
  std::int64_t item, last_item;
  int item_step;

  __device__ Group(const Spread& spread, const RowAttentionShape& shape) {
    const int group = static_cast<int>(threadIdx.x) / kLanes;
    lane = static_cast<int>(threadIdx.x) % kLanes;
    own = lane / kLanesPerNonzero;
    speaks = lane % kLanesPerNonzero == 0;
    const std::int64_t head_blocks = shape.heads / spread.heads_per_warp;
    const std::int64_t block = blockIdx.x, pair_block = block / spread.item_blocks;
    batch = pair_block / head_blocks;
    head = pair_block % head_blocks * spread.heads_per_warp + group % spread.heads_per_warp;
    pair = batch * shape.heads + head;
    item_step = kThreads / kLanes / spread.heads_per_warp;
    const std::int64_t first = block % spread.item_blocks * spread.items_per_block;
    last_item = first + spread.items_per_block;
    item = first + group / spread.heads_per_warp;
  }
  __device__ int rounds(const Spread& spread) const {
    return (spread.items_per_block + item_step - 1) / item_step;
  }
};

__device__ inline uint4 load_vector(const void* address) {
  return __ldg(static_cast<const uint4*>(address));
}

template <class T>
__device__ inline void load_row(const T* row, float (&x)[Vector<T>::kWidth]) {
  Vector<T>::unpack(load_vector(row), x);
}

template <int N>
__device__ inline float dot(const float (&a)[N], const float (&b)[N]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) sum = fmaf(a[i], b[i], sum);
  return sum;
}

template <int N>
__device__ inline void add_scaled(float weight, const float (&row)[N], float (&sum)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) sum[i] = fmaf(weight, row[i], sum[i]);
}

// phi(q) = max(q, 0) + epsilon where that is asked for; 0 in lanes beyond the row.
template <class T, Mode kMode>
__device__ inline void query_features(const T* row, bool inside, float epsilon,
                                      float (&q)[Vector<T>::kWidth]) {
  load_row(row, q);
#pragma unroll
  for (float& x : q) {
    if constexpr (kMode == Mode::relu) x = fmaxf(x, 0.0f) + epsilon;
    if (!inside) x = 0;
  }
}

template <class T, int kLanes, Mode kMode, class Tuned>
__global__ void __launch_bounds__(kThreads, Tuned::kMinBlocks)
    forward_rows(const __grid_constant__ RowAttentionForward pass, const __grid_constant__ Spread spread) {
  using V = Vector<T>;
  using G = Group<kLanes, Tuned::kBatch>;
  constexpr int kWidth = V::kWidth, kBatch = G::kBatch;
  const RowAttentionShape& shape = pass.shape;
  G group(spread, shape);
  // Lanes beyond a short row read its first vector: harmless, and cheaper than asking at every load.
  const int column = group.lane * kWidth;
  const bool in_features = column < shape.features, in_values = column < shape.value_columns;
  const T* q_rows = head_rows<const T>(pass.q, group.batch, group.head) + (in_features ? column : 0);
  const T* k_rows = head_rows<const T>(pass.k, group.batch, group.head) + (in_features ? column : 0);
  const T* v_rows = head_rows<const T>(pass.v, group.batch, group.head) + (in_values ? column : 0);
  T* out_rows = head_rows<T>(pass.out, group.batch, group.head) + column;
  const float* value = static_cast<const float*>(pass.value) + group.head * pass.value_step;
  float* dots = pass.dot == nullptr ? nullptr : static_cast<float*>(pass.dot) + group.pair * pass.mask.nnz;
  const int k_step = static_cast<int>(pass.k.node_step), v_step = static_cast<int>(pass.v.node_step);
  const float epsilon = static_cast<float>(shape.epsilon), scale = static_cast<float>(shape.scale);

  const int rounds = group.rounds(spread);
  for (int round = 0; round < rounds; ++round, group.item += group.item_step) {
    const Item item = group.item < group.last_item ? item_at(pass.mask, group.item, spread.segments) : Item();
    float q[kWidth], sum[kWidth] = {};
    query_features<T, kMode>(q_rows + item.row * pass.q.node_step, in_features && item.mine, epsilon, q);
    float constant = 0;  // of phi(k) = max(k, 0) + epsilon, the second half of every product
    if constexpr (kMode == Mode::relu) {
#pragma unroll
      for (const float x : q) constant += x;
      constant = epsilon * sum_lanes<kLanes>(constant);
    }
    float normaliser = 0, row_max = -INFINITY;

    // All groups of a warp take as many steps as the longest of their rows: exchanges need all lanes.
    const int steps = __reduce_max_sync(0xffffffffu, (item.count + kBatch - 1) / kBatch);
    const std::int32_t* cols = pass.mask.col + item.first;
    const float* values = value + item.first;
    int next = group.own;
    std::int32_t col = item.row;  // lanes without a nonzero fetch a row that is close at hand
    float mask = 0;
    if (next < item.count) col = cols[next], mask = values[next];
    for (int step = 0; step < steps; ++step) {
      const std::int32_t own_col = col;
      const float own_mask = mask;
      const int own = next;
      const bool valid = own < item.count;
      next += kBatch;
      mask = 0;
      if (next < item.count) col = cols[next], mask = values[next];

      uint4 k_raw[kBatch], v_raw[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const std::int64_t j = __shfl_sync(0xffffffffu, own_col, u * G::kLanesPerNonzero, kLanes);
        k_raw[u] = load_vector(k_rows + j * k_step);
        if constexpr (Tuned::kBoth) v_raw[u] = load_vector(v_rows + j * v_step);
      }
      float dot_of[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        float k[kWidth];
        V::unpack(kMode == Mode::relu ? V::relu(k_raw[u]) : k_raw[u], k);
        dot_of[u] = dot(q, k);
      }
      const float own_dot = transposed_sum<kLanes>(dot_of, group.lane) + constant;
      if (dots != nullptr && valid && group.speaks) dots[item.first + own] = own_dot;
      float weight = own_dot * own_mask;
      if constexpr (kMode == Mode::softmax) {
        const float score = valid ? own_dot * scale : -INFINITY;
        const float new_max = fmaxf(row_max, max_lanes<kLanes>(score));
        const float shrink = row_max == new_max ? 1.0f : expf(row_max - new_max);
        row_max = new_max;
        normaliser *= shrink;
#pragma unroll
        for (float& x : sum) x *= shrink;
        weight = expf(score - new_max) * own_mask;
      }
      if (!valid) weight = 0;
      normaliser += weight;
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        float v[kWidth];
        if constexpr (!Tuned::kBoth) {
          const std::int64_t j = __shfl_sync(0xffffffffu, own_col, u * G::kLanesPerNonzero, kLanes);
          v_raw[u] = load_vector(v_rows + j * v_step);
        }
        V::unpack(v_raw[u], v);
        add_scaled(__shfl_sync(0xffffffffu, weight, u * G::kLanesPerNonzero, kLanes), v, sum);
      }
    }
    normaliser = sum_lanes<kLanes, G::kLanesPerNonzero>(normaliser);
    if (!item.mine) continue;
    if (spread.segments) {
      float* found =
          segment_row_of<float>(pass.workspace, pass.mask, group.pair, group.item, shape.value_columns + 2);
      if (in_values) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) found[column + i] = sum[i];
      }
      if (group.lane == 0) {
        found[shape.value_columns] = normaliser;
        found[shape.value_columns + 1] = row_max;
      }
      continue;
    }
    const float inverse = fabsf(normaliser) > static_cast<float>(shape.guard) ? 1 / normaliser : 0.0f;
    if (group.lane == 0) {
      const std::int64_t at = group.pair * pass.mask.num_rows + item.row;
      static_cast<float*>(pass.inverse)[at] = inverse;
      if constexpr (kMode == Mode::softmax) static_cast<float*>(pass.row_max)[at] = row_max;
    }
    if (in_values) {
#pragma unroll
      for (float& x : sum) x *= inverse;
      *reinterpret_cast<uint4*>(out_rows + item.row * pass.out.node_step) = V::pack(sum);
    }
  }
}

// The gradient of features through phi, written as T.
template <class T, Mode kMode>
__device__ inline void store_feature_gradient(const T* at, float (&sum)[Vector<T>::kWidth], T* out) {
  if constexpr (kMode == Mode::relu) {
    float x[Vector<T>::kWidth];
    load_row(at, x);
#pragma unroll
    for (int i = 0; i < Vector<T>::kWidth; ++i) sum[i] = x[i] >= 0 ? sum[i] : 0.0f;
  }
  *reinterpret_cast<uint4*>(out) = Vector<T>::pack(sum);
}

template <class T, int kLanes, Mode kMode, class Tuned>
__global__ void __launch_bounds__(kThreads, Tuned::kMinBlocks)
    backward_rows(const __grid_constant__ RowAttentionBackward pass, const __grid_constant__ Spread spread) {
  using V = Vector<T>;
  using G = Group<kLanes, Tuned::kBatch>;
  constexpr int kWidth = V::kWidth, kBatch = G::kBatch;
  const RowAttentionShape& shape = pass.shape;
  G group(spread, shape);
  const int column = group.lane * kWidth;
  const bool in_features = column < shape.features, in_values = column < shape.value_columns;
  const int f_column = in_features ? column : 0, v_column = in_values ? column : 0;
  const T* k_rows = head_rows<const T>(pass.k, group.batch, group.head) + f_column;
  const T* v_rows = head_rows<const T>(pass.v, group.batch, group.head) + v_column;
  const T* out_rows = head_rows<const T>(pass.out, group.batch, group.head) + v_column;
  const T* grad_rows = head_rows<const T>(pass.grad_out, group.batch, group.head) + v_column;
  const float* value = static_cast<const float*>(pass.value) + group.head * pass.value_step;
  const std::int64_t pair_entries = group.pair * pass.mask.nnz;
  const float* dots = static_cast<const float*>(pass.dot) + pair_entries;
  float* grad_value =
      pass.grad_value == nullptr ? nullptr : static_cast<float*>(pass.grad_value) + pair_entries;
  float2* weights = static_cast<float2*>(pass.weights) + pair_entries;
  const int k_step = static_cast<int>(pass.k.node_step), v_step = static_cast<int>(pass.v.node_step);
  const float epsilon = static_cast<float>(shape.epsilon), scale = static_cast<float>(shape.scale);

  const int rounds = group.rounds(spread);
  for (int round = 0; round < rounds; ++round, group.item += group.item_step) {
    const Item item = group.item < group.last_item ? item_at(pass.mask, group.item, spread.segments) : Item();
    float g[kWidth], out[kWidth], sum[kWidth] = {};
    load_row(grad_rows + item.row * pass.grad_out.node_step, g);
    load_row(out_rows + item.row * pass.out.node_step, out);
    if (!in_values) {
#pragma unroll
      for (float& x : g) x = 0;
    }
    const float along_out = sum_lanes<kLanes>(dot(g, out));  // what the normaliser takes away
    const std::int64_t at = group.pair * pass.mask.num_rows + item.row;
    const float inverse = static_cast<const float*>(pass.inverse)[at];
    const float row_max = kMode == Mode::softmax ? static_cast<const float*>(pass.row_max)[at] : 0.0f;
    float weight_sum = 0;

    const int steps = __reduce_max_sync(0xffffffffu, (item.count + kBatch - 1) / kBatch);
    const std::int32_t* cols = pass.mask.col + item.first;
    int next = group.own;
    std::int32_t col = item.row;
    if (next < item.count) col = cols[next];
    for (int step = 0; step < steps; ++step) {
      const std::int32_t own_col = col;
      const int own = next;
      const bool valid = own < item.count;
      const std::int64_t entry = item.first + own;
      float mask = 0, score = 0;
      if (valid) mask = value[entry], score = dots[entry];
      next += kBatch;
      if (next < item.count) col = cols[next];

      uint4 k_raw[kBatch], v_raw[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const std::int64_t j = __shfl_sync(0xffffffffu, own_col, u * G::kLanesPerNonzero, kLanes);
        v_raw[u] = load_vector(v_rows + j * v_step);
        if constexpr (Tuned::kBoth) k_raw[u] = load_vector(k_rows + j * k_step);
      }
      float slope_of[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        float v[kWidth];
        V::unpack(v_raw[u], v);
        slope_of[u] = dot(g, v);
      }
      const float slope = transposed_sum<kLanes>(slope_of, group.lane);
      if constexpr (kMode == Mode::softmax) score = expf(score * scale - row_max);
      const float grad_score = (slope - along_out) * inverse;  // dL / d(M_ij e_ij)
      float key_weight = grad_score * mask * (kMode == Mode::softmax ? score * scale : 1.0f);
      if (!valid) key_weight = 0;
      if (valid && group.speaks) {
        if (grad_value != nullptr) grad_value[entry] = grad_score * score;
        weights[entry] = {key_weight, mask * score * inverse};
      }
      weight_sum += key_weight;
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        float k[kWidth];
        if constexpr (!Tuned::kBoth) {
          const std::int64_t j = __shfl_sync(0xffffffffu, own_col, u * G::kLanesPerNonzero, kLanes);
          k_raw[u] = load_vector(k_rows + j * k_step);
        }
        V::unpack(kMode == Mode::relu ? V::relu(k_raw[u]) : k_raw[u], k);
        add_scaled(__shfl_sync(0xffffffffu, key_weight, u * G::kLanesPerNonzero, kLanes), k, sum);
      }
    }
    if constexpr (kMode == Mode::relu) {
      weight_sum = epsilon * sum_lanes<kLanes, G::kLanesPerNonzero>(weight_sum);
#pragma unroll
      for (float& x : sum) x += weight_sum;
    }
    if (!item.mine || !in_features) continue;
    if (spread.segments) {
      float* found = segment_row_of<float>(pass.workspace, pass.mask, group.pair, group.item, shape.features);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) found[column + i] = sum[i];
    } else {
      store_feature_gradient<T, kMode>(
          head_rows<const T>(pass.q, group.batch, group.head) + item.row * pass.q.node_step + column, sum,
          head_rows<T>(pass.grad_q, group.batch, group.head) + item.row * pass.grad_q.node_step + column);
    }
  }
}

template <class T, int kLanes, Mode kMode, class Tuned>
__global__ void __launch_bounds__(kThreads, Tuned::kMinBlocks)
    backward_columns(const __grid_constant__ RowAttentionBackward pass,
                     const __grid_constant__ Spread spread) {
  using V = Vector<T>;
  using G = Group<kLanes, Tuned::kBatch>;
  constexpr int kWidth = V::kWidth, kBatch = G::kBatch;
  const RowAttentionShape& shape = pass.shape;
  G group(spread, shape);
  const int column = group.lane * kWidth;
  const bool in_features = column < shape.features, in_values = column < shape.value_columns;
  const T* q_rows = head_rows<const T>(pass.q, group.batch, group.head) + (in_features ? column : 0);
  const T* grad_rows = head_rows<const T>(pass.grad_out, group.batch, group.head) + (in_values ? column : 0);
  const float2* weights = static_cast<const float2*>(pass.weights) + group.pair * pass.mask.nnz;
  const int q_step = static_cast<int>(pass.q.node_step), g_step = static_cast<int>(pass.grad_out.node_step);
  const float epsilon = static_cast<float>(shape.epsilon);

  const int rounds = group.rounds(spread);
  for (int round = 0; round < rounds; ++round, group.item += group.item_step) {
    const Item item =
        group.item < group.last_item ? item_at(pass.columns, group.item, spread.segments) : Item();
    float key_sum[kWidth] = {}, value_sum[kWidth] = {}, weight_sum = 0;
    const int steps = __reduce_max_sync(0xffffffffu, (item.count + kBatch - 1) / kBatch);
    const std::int32_t* rows = pass.columns.col + item.first;
    const std::int64_t* entries = pass.columns.entry + item.first;
    int next = group.own;
    std::int32_t row = item.row;
    float2 weight = {0, 0};
    if (next < item.count) row = rows[next], weight = weights[entries[next]];
    for (int step = 0; step < steps; ++step) {
      const std::int32_t own_row = row;
      const float2 own_weight = weight;
      next += kBatch;
      weight = {0, 0};
      if (next < item.count) row = rows[next], weight = weights[entries[next]];
      weight_sum += own_weight.x;
      uint4 q_raw[kBatch], g_raw[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const std::int64_t i = __shfl_sync(0xffffffffu, own_row, u * G::kLanesPerNonzero, kLanes);
        q_raw[u] = load_vector(q_rows + i * q_step);
        g_raw[u] = load_vector(grad_rows + i * g_step);
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        float q[kWidth], g[kWidth];
        V::unpack(kMode == Mode::relu ? V::relu(q_raw[u]) : q_raw[u], q);
        add_scaled(__shfl_sync(0xffffffffu, own_weight.x, u * G::kLanesPerNonzero, kLanes), q, key_sum);
        V::unpack(g_raw[u], g);
        add_scaled(__shfl_sync(0xffffffffu, own_weight.y, u * G::kLanesPerNonzero, kLanes), g, value_sum);
      }
    }
    if constexpr (kMode == Mode::relu) {
      weight_sum = epsilon * sum_lanes<kLanes, G::kLanesPerNonzero>(weight_sum);
#pragma unroll
      for (float& x : key_sum) x += weight_sum;
    }
    if (!item.mine) continue;
    if (spread.segments) {
      float* found = segment_row_of<float>(pass.workspace, pass.columns, group.pair, group.item,
                                           shape.features + shape.value_columns);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (in_features) found[column + i] = key_sum[i];
        if (in_values) found[shape.features + column + i] = value_sum[i];
      }
      continue;
    }
    if (in_features) {
      store_feature_gradient<T, kMode>(
          head_rows<const T>(pass.k, group.batch, group.head) + item.row * pass.k.node_step + column, key_sum,
          head_rows<T>(pass.grad_k, group.batch, group.head) + item.row * pass.grad_k.node_step + column);
    }
    if (in_values) {
      T* out = head_rows<T>(pass.grad_v, group.batch, group.head) + item.row * pass.grad_v.node_step + column;
      *reinterpret_cast<uint4*>(out) = V::pack(value_sum);
    }
  }
}

}  // namespace topomask::row_attention
