// The fast path of the `mask` engine: one 16-byte vector per lane, kLanes lanes per row and head.
//
// What bounds it is the gather of rows through the first-level cache and the instructions that unpack them.
// Hence blocks of consecutive rows (in the pattern's order), whose neighbours overlap; kBatch rows fetched
// before the first is used; and dot products summed over the lanes all at once, after which each lane holds
// one of them and does what there is to do for a nonzero alone.
#pragma once

#include "attention/cuda/row_attention_device.cuh"
#include "attention/cuda/row_attention_kernels.h"

namespace topomask::row_attention {

constexpr int kThreads = 256;

// Measured on an H200 (docs/performance.md).
constexpr int kMinBlocks = 2;         // to a multiprocessor, which bounds the registers
constexpr int kRowsTimesHeads = 256;  // of a block

// How a launch spreads items and heads over blocks.
struct Spread {
  int items_per_block = 128;  // at most kThreads
  int heads_per_warp = 1;     // neighbouring groups of lanes work on so many heads of one row
  std::int64_t item_blocks = 0;
  bool segments = false;
};

// One group of lanes: where it stands in the grid.
template <int kLanes>
struct Group {
  static constexpr int kBatch = kLanes < 8 ? kLanes : 8;  // nonzeros in flight
  static constexpr int kHalf = kBatch / 2;
  static constexpr int kLanesPerNonzero = kLanes / kBatch;  // lanes that hold the same nonzero

  int lane, own;  // own: the nonzero of a batch that this lane holds
  bool speaks;    // first of the lanes that hold it
  int batch, head, pair;
  std::int64_t first_item;  // of the block
  int which, step;  // among the items of the block: the group's next one, and how far the one after it

  __device__ Group(const Spread& spread, const RowAttentionShape& shape) {
    const int group = static_cast<int>(threadIdx.x) / kLanes;
    lane = static_cast<int>(threadIdx.x) % kLanes;
    own = lane / kLanesPerNonzero;
    speaks = lane % kLanesPerNonzero == 0;
    const std::int64_t head_blocks = shape.heads / spread.heads_per_warp;
    const std::int64_t block = blockIdx.x, pair_block = block / spread.item_blocks;
    batch = static_cast<int>(pair_block / head_blocks);
    head = static_cast<int>(pair_block % head_blocks) * spread.heads_per_warp + group % spread.heads_per_warp;
    pair = batch * static_cast<int>(shape.heads) + head;
    first_item = block % spread.item_blocks * spread.items_per_block;
    which = group / spread.heads_per_warp;
    step = kThreads / kLanes / spread.heads_per_warp;
  }
  // From the lane of this group that holds nonzero u of the batch.
  template <class R>
  __device__ static R from_nonzero(R x, int u) {
    return __shfl_sync(0xffffffffu, x, u * kLanesPerNonzero, kLanes);
  }
  // Sums kCount numbers, one for each of the first nonzeros of a batch, over the lanes: each lane gets its
  // own.
  template <int kCount>
  __device__ float sum_own(float (&x)[kCount]) const {
    const float sum = transposed_sum<kLanes>(x, lane);
    if constexpr (kCount == kBatch) return sum;
    return __shfl_sync(0xffffffffu, sum, own % kCount * (kLanes / kCount), kLanes);
  }
};

// The items of a block, looked up once by all its threads and read from shared memory by every lane.
struct Items {
  Item item[kThreads];

  __device__ void look_up(const DeviceRows& rows, const Spread& spread, std::int64_t first) {
    const int mine = static_cast<int>(threadIdx.x);
    if (mine < spread.items_per_block) item[mine] = item_at(rows, first + mine, spread.segments);
    __syncthreads();
  }
};

// Calls batch(n) for the nonzeros of a row, n of them at a time: whole batches, then half a one where that is
// enough. All groups of a warp do as many as the longest of their rows needs: exchanges need all lanes.
template <class G, class Batch>
__device__ inline void for_batches(int count, const Batch& batch) {
  const int halves = __reduce_max_sync(0xffffffffu, (count + G::kHalf - 1) / G::kHalf);
  for (int half = 0; half + 1 < halves; half += 2) batch(std::integral_constant<int, G::kBatch>{});
  if (halves % 2 == 1) batch(std::integral_constant<int, G::kHalf>{});
}

// One lane's vector of every row of an operand. A row's address is a single multiply-add of 32-bit numbers.
template <class T>
struct Gathered {
  const char* first;
  unsigned step;  // bytes

  __device__ Gathered(const Rows4& rows, std::int64_t batch, std::int64_t head, int column)
      : first(reinterpret_cast<const char*>(head_rows<const T>(rows, batch, head) + column)),
        step(static_cast<unsigned>(rows.node_step * sizeof(T))) {}
  __device__ const char* at(std::int32_t row) const {
    return first + static_cast<std::uint64_t>(static_cast<std::uint32_t>(row)) * step;
  }
  __device__ uint4 operator[](std::int32_t row) const {
    return __ldg(reinterpret_cast<const uint4*>(at(row)));
  }
};

// Lanes without a nonzero fetch another one of the row, with weight 0: a row that the mask leaves out is
// never touched, whatever it holds.
__device__ inline std::int32_t first_column(const DeviceRows& rows, const Item& item, int own) {
  return item.count == 0 ? item.row : rows.col[item.first + min(own, item.count - 1)];
}

// An empty row goes through the batches of its neighbours in the warp all the same.
template <int N>
__device__ inline void clear_if_empty(const Item& item, float (&sum)[N]) {
#pragma unroll
  for (float& x : sum) x = item.count == 0 ? 0.0f : x;
}

// What is read or written once must not push gathered rows out of the caches.
__device__ inline uint4 load_once(const void* address) {
  return __ldcs(static_cast<const uint4*>(address));
}
__device__ inline void store_once(void* address, uint4 vector) {
  __stcs(static_cast<uint4*>(address), vector);
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
template <class T, ScoreKind kKind>
__device__ inline void query_features(uint4 raw, bool inside, float epsilon, float (&q)[Vector<T>::kWidth]) {
  Vector<T>::unpack(raw, q);
#pragma unroll
  for (float& x : q) {
    if constexpr (kKind == ScoreKind::relu) x = relu(x) + epsilon;
    if (!inside) x = 0;
  }
}

template <class T, int kLanes, ScoreKind kKind>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    forward_rows(const __grid_constant__ RowAttentionForward pass, const __grid_constant__ Spread spread) {
  using V = Vector<T>;
  using G = Group<kLanes>;
  constexpr int kWidth = V::kWidth, kBatch = G::kBatch;
  __shared__ Items items;
  const RowAttentionShape& shape = pass.shape;
  G group(spread, shape);
  items.look_up(pass.mask, spread, group.first_item);
  // Lanes beyond a short row read its first vector: harmless, and cheaper than asking at every load.
  const int column = group.lane * kWidth;
  const bool in_features = column < shape.features, in_values = column < shape.value_columns;
  const Gathered<T> q_rows(pass.q, group.batch, group.head, in_features ? column : 0);
  const Gathered<T> k_rows(pass.k, group.batch, group.head, in_features ? column : 0);
  const Gathered<T> v_rows(pass.v, group.batch, group.head, in_values ? column : 0);
  const float* value = static_cast<const float*>(pass.value) + group.head * pass.value_step;
  float* dots = pass.dot == nullptr ? nullptr : static_cast<float*>(pass.dot) + group.pair * pass.mask.nnz;
  const float epsilon = static_cast<float>(shape.rule.epsilon), scale = static_cast<float>(shape.rule.scale);

  // What the next row starts with is fetched while this one computes.
  Item item;
  uint4 q_raw;
  std::int32_t col;
  float mask;
  const auto start = [&](int which) {
    item = which < spread.items_per_block ? items.item[which] : Item();
    q_raw = load_once(q_rows.at(item.row));
    col = first_column(pass.mask, item, group.own);
    mask = 0;
    if (group.own < item.count) mask = __ldcs(value + item.first + group.own);
  };
  start(group.which);
  for (int which = group.which; which - group.which < spread.items_per_block; which += group.step) {
    const Item now = item;
    float q[kWidth], sum[kWidth] = {};
    query_features<T, kKind>(q_raw, in_features, epsilon, q);
    float constant = 0;  // of phi(k) = max(k, 0) + epsilon, the second half of every product
    if constexpr (kKind == ScoreKind::relu) {
#pragma unroll
      for (const float x : q) constant += x;
      constant = epsilon * sum_lanes<kLanes>(constant);
    }
    float normaliser = 0, row_max = -INFINITY;
    int next = group.own;
    for_batches<G>(now.count, [&](auto size) {
      constexpr int kSize = size;
      const std::int32_t own_col = col;
      const float own_mask = mask;
      const bool valid = next < now.count;
      const std::int64_t entry = now.first + next;
      uint4 k_raw[kSize], v_raw[kSize];
#pragma unroll
      for (int u = 0; u < kSize; ++u) {
        const std::int32_t j = G::from_nonzero(own_col, u);
        k_raw[u] = k_rows[j];
        v_raw[u] = v_rows[j];
      }
      next += kBatch;
      mask = 0;
      if (next < now.count) col = pass.mask.col[now.first + next], mask = __ldcs(value + now.first + next);
      float dot_of[kSize];
#pragma unroll
      for (int u = 0; u < kSize; ++u) {
        float k[kWidth];
        V::unpack(kKind == ScoreKind::relu ? V::relu(k_raw[u]) : k_raw[u], k);
        dot_of[u] = dot(q, k);
      }
      const float own_dot = group.template sum_own<kSize>(dot_of) + constant;
      if (dots != nullptr && valid && group.speaks) __stcs(dots + entry, own_dot);
      float weight = own_dot * own_mask;
      if constexpr (kKind == ScoreKind::softmax) {
        const float score = valid && own_mask != 0 ? own_dot * scale : -INFINITY;
        const float new_max = fmaxf(row_max, max_lanes<kLanes>(score));
        const float shrink = row_max == new_max ? 1.0f : expf(row_max - new_max);
        row_max = new_max;
        normaliser *= shrink;
#pragma unroll
        for (float& x : sum) x *= shrink;
        weight = expf(score - shift_of(new_max)) * own_mask;
      }
      if (!valid) weight = 0;
      normaliser += weight;
#pragma unroll
      for (int u = 0; u < kSize; ++u) {
        float v[kWidth];
        V::unpack(v_raw[u], v);
        add_scaled(G::from_nonzero(weight, u), v, sum);
      }
    });
    clear_if_empty(now, sum);
    start(which + group.step);
    normaliser = sum_lanes<kLanes, G::kLanesPerNonzero>(normaliser);
    if (!now.mine) continue;
    if (spread.segments) {
      float* found = segment_row_of<float>(pass.workspace, pass.mask, group.pair, group.first_item + which,
                                           shape.value_columns + 2);
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
    const float inverse = inverse_of(normaliser, static_cast<float>(shape.rule.guard));
    if (group.lane == 0) {
      const std::int64_t at = group.pair * pass.mask.num_rows + now.row;
      static_cast<float*>(pass.inverse)[at] = inverse;
      if constexpr (kKind == ScoreKind::softmax) static_cast<float*>(pass.row_max)[at] = shift_of(row_max);
    }
    if (in_values) {
#pragma unroll
      for (float& x : sum) x *= inverse;
      T* out = head_rows<T>(pass.out, group.batch, group.head) + now.row * pass.out.node_step + column;
      store_once(out, V::pack(sum));
    }
  }
}

// The gradient of features through phi at `at`, written as T.
template <class T, ScoreKind kKind>
__device__ inline void store_feature_gradient(const void* at, float (&sum)[Vector<T>::kWidth], T* out) {
  if constexpr (kKind == ScoreKind::relu) {
    float x[Vector<T>::kWidth];
    Vector<T>::unpack(load_once(at), x);
#pragma unroll
    for (int i = 0; i < Vector<T>::kWidth; ++i) sum[i] = x[i] >= 0 ? sum[i] : 0.0f;
  }
  store_once(out, Vector<T>::pack(sum));
}

// What the row half leaves for the column half, [pairs / kBeside, nnz, kBeside]: neighbouring heads side by
// side, which neighbouring groups of lanes read together.
template <int kBeside>
struct Weights {
  float2* first;

  __device__ Weights(const RowAttentionBackward& pass, int pair)
      : first(static_cast<float2*>(pass.weights) + pair / kBeside * kBeside * pass.mask.nnz +
              pair % kBeside) {}
  __device__ float2& operator[](std::int64_t entry) const { return first[entry * kBeside]; }
};

// kBeside: heads whose weights stand side by side. kSummed: neighbouring heads whose dL/dM are added up.
template <class T, int kLanes, ScoreKind kKind, int kBeside, int kSummed>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    backward_rows(const __grid_constant__ RowAttentionBackward pass, const __grid_constant__ Spread spread) {
  using V = Vector<T>;
  using G = Group<kLanes>;
  constexpr int kWidth = V::kWidth, kBatch = G::kBatch;
  __shared__ Items items;
  const RowAttentionShape& shape = pass.shape;
  G group(spread, shape);
  items.look_up(pass.mask, spread, group.first_item);
  const int column = group.lane * kWidth;
  const bool in_features = column < shape.features, in_values = column < shape.value_columns;
  const int f_column = in_features ? column : 0, v_column = in_values ? column : 0;
  const Gathered<T> q_rows(pass.q, group.batch, group.head, f_column);
  const Gathered<T> k_rows(pass.k, group.batch, group.head, f_column);
  const Gathered<T> v_rows(pass.v, group.batch, group.head, v_column);
  const Gathered<T> out_rows(pass.out, group.batch, group.head, v_column);
  const Gathered<T> grad_rows(pass.grad_out, group.batch, group.head, v_column);
  const float* value = static_cast<const float*>(pass.value) + group.head * pass.value_step;
  const std::int64_t pair_entries = group.pair * pass.mask.nnz;
  const float* dots = static_cast<const float*>(pass.dot) + pair_entries;
  float* grad_value = pass.grad_value == nullptr
                          ? nullptr
                          : static_cast<float*>(pass.grad_value) + group.pair / kSummed * pass.mask.nnz;
  const bool writes_grad = group.speaks && group.head % kSummed == 0;
  const Weights<kBeside> weights(pass, group.pair);
  const float epsilon = static_cast<float>(shape.rule.epsilon), scale = static_cast<float>(shape.rule.scale);

  Item item;
  uint4 g_raw, out_raw;
  std::int32_t col;
  float inverse, row_max;
  const auto start = [&](int which) {
    item = which < spread.items_per_block ? items.item[which] : Item();
    g_raw = load_once(grad_rows.at(item.row));
    out_raw = load_once(out_rows.at(item.row));
    const std::int64_t at = group.pair * pass.mask.num_rows + item.row;
    inverse = static_cast<const float*>(pass.inverse)[at];
    if constexpr (kKind == ScoreKind::softmax) row_max = static_cast<const float*>(pass.row_max)[at];
    col = first_column(pass.mask, item, group.own);
  };
  start(group.which);
  for (int which = group.which; which - group.which < spread.items_per_block; which += group.step) {
    const Item now = item;
    const float own_inverse = inverse;
    float g[kWidth], out[kWidth], sum[kWidth] = {};
    V::unpack(g_raw, g);
    V::unpack(out_raw, out);
    if (!in_values) {
#pragma unroll
      for (float& x : g) x = 0;
    }
    const float along_out = sum_lanes<kLanes>(dot(g, out));  // what the normaliser takes away
    float weight_sum = 0;
    int next = group.own;
    for_batches<G>(now.count, [&](auto size) {
      constexpr int kSize = size;
      const std::int32_t own_col = col;
      const bool valid = next < now.count;
      const std::int64_t entry = now.first + next;
      uint4 k_raw[kSize], v_raw[kSize];
#pragma unroll
      for (int u = 0; u < kSize; ++u) {
        const std::int32_t j = G::from_nonzero(own_col, u);
        v_raw[u] = v_rows[j];
        k_raw[u] = k_rows[j];
      }
      float mask = 0, score = 0;
      if (valid) mask = __ldcs(value + entry), score = __ldcs(dots + entry);
      next += kBatch;
      if (next < now.count) col = pass.mask.col[now.first + next];
      float slope_of[kSize];
#pragma unroll
      for (int u = 0; u < kSize; ++u) {
        float v[kWidth];
        V::unpack(v_raw[u], v);
        slope_of[u] = dot(g, v);
      }
      const float slope = group.template sum_own<kSize>(slope_of);
      const float grad_score = (slope - along_out) * own_inverse;  // dL / d(M_ij e_ij)
      float grad = grad_score * score, key_weight = grad_score * mask;
      if constexpr (kKind == ScoreKind::softmax) {
        const float half = half_exponential(score * scale - row_max);
        score = mask == 0 ? 0.0f : half * half;
        grad = grad_score * half * half;
        key_weight *= score * scale;
      }
      if (!valid) key_weight = 0;
      if (valid && group.speaks) weights[entry] = {key_weight, mask * score * own_inverse};
      grad = sum_lanes<kLanes * kSummed, kLanes>(grad);
      if (grad_value != nullptr && valid && writes_grad) __stcs(grad_value + entry, grad);
      weight_sum += key_weight;
#pragma unroll
      for (int u = 0; u < kSize; ++u) {
        float k[kWidth];
        V::unpack(kKind == ScoreKind::relu ? V::relu(k_raw[u]) : k_raw[u], k);
        add_scaled(G::from_nonzero(key_weight, u), k, sum);
      }
    });
    clear_if_empty(now, sum);
    start(which + group.step);
    if constexpr (kKind == ScoreKind::relu) {
      weight_sum = epsilon * sum_lanes<kLanes, G::kLanesPerNonzero>(weight_sum);
#pragma unroll
      for (float& x : sum) x += weight_sum;
    }
    if (!now.mine || !in_features) continue;
    if (spread.segments) {
      float* found = segment_row_of<float>(pass.workspace, pass.mask, group.pair, group.first_item + which,
                                           shape.features);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) found[column + i] = sum[i];
    } else {
      store_feature_gradient<T, kKind>(
          q_rows.at(now.row), sum,
          head_rows<T>(pass.grad_q, group.batch, group.head) + now.row * pass.grad_q.node_step + column);
    }
  }
}

template <class T, int kLanes, ScoreKind kKind, int kBeside>
__global__ void __launch_bounds__(kThreads, kMinBlocks)
    backward_columns(const __grid_constant__ RowAttentionBackward pass,
                     const __grid_constant__ Spread spread) {
  using V = Vector<T>;
  using G = Group<kLanes>;
  constexpr int kWidth = V::kWidth, kBatch = G::kBatch;
  __shared__ Items items;
  const RowAttentionShape& shape = pass.shape;
  G group(spread, shape);
  items.look_up(pass.columns, spread, group.first_item);
  const int column = group.lane * kWidth;
  const bool in_features = column < shape.features, in_values = column < shape.value_columns;
  const Gathered<T> q_rows(pass.q, group.batch, group.head, in_features ? column : 0);
  const Gathered<T> k_rows(pass.k, group.batch, group.head, in_features ? column : 0);
  const Gathered<T> grad_rows(pass.grad_out, group.batch, group.head, in_values ? column : 0);
  const Weights<kBeside> weights(pass, group.pair);
  const float epsilon = static_cast<float>(shape.rule.epsilon);

  // Where a weight stands is known only from another load: each is asked for one step earlier than what
  // needs it, across rows as well.
  const auto item_of = [&](int which) { return which < spread.items_per_block ? items.item[which] : Item(); };
  const auto entry_of = [&](const Item& of, int next) {
    return next < of.count ? pass.columns.entry[of.first + next] : 0;
  };
  Item item;  // the next row, and what its first batch needs
  std::int32_t first_row;
  float2 first_weight;
  std::int64_t first_entry = entry_of(item_of(group.which), group.own);
  const auto start = [&](int which) {
    item = item_of(which);
    first_row = first_column(pass.columns, item, group.own);
    first_weight = group.own < item.count ? weights[first_entry] : float2{0, 0};
    first_entry = entry_of(item_of(which + group.step), group.own);
  };
  start(group.which);
  for (int which = group.which; which - group.which < spread.items_per_block; which += group.step) {
    const Item now = item;
    std::int32_t row = first_row;
    float2 weight = first_weight;
    std::int64_t entry = entry_of(now, group.own + kBatch);
    start(which + group.step);
    float key_sum[kWidth] = {}, value_sum[kWidth] = {}, weight_sum = 0;
    int next = group.own;
    for_batches<G>(now.count, [&](auto size) {
      constexpr int kSize = size;
      const std::int32_t own_row = row;
      const float2 own_weight = weight;
      weight_sum += own_weight.x;
      uint4 q_raw[kSize], g_raw[kSize];
#pragma unroll
      for (int u = 0; u < kSize; ++u) {
        const std::int32_t i = G::from_nonzero(own_row, u);
        q_raw[u] = q_rows[i];
        g_raw[u] = grad_rows[i];
      }
      next += kBatch;
      weight = {0, 0};
      if (next < now.count) {
        row = pass.columns.col[now.first + next];
        weight = weights[entry];
      }
      entry = entry_of(now, next + kBatch);
#pragma unroll
      for (int u = 0; u < kSize; ++u) {
        float q[kWidth], g[kWidth];
        V::unpack(kKind == ScoreKind::relu ? V::relu(q_raw[u]) : q_raw[u], q);
        add_scaled(G::from_nonzero(own_weight.x, u), q, key_sum);
        V::unpack(g_raw[u], g);
        add_scaled(G::from_nonzero(own_weight.y, u), g, value_sum);
      }
    });
    clear_if_empty(now, key_sum);
    clear_if_empty(now, value_sum);
    if constexpr (kKind == ScoreKind::relu) {
      weight_sum = epsilon * sum_lanes<kLanes, G::kLanesPerNonzero>(weight_sum);
#pragma unroll
      for (float& x : key_sum) x += weight_sum;
    }
    if (!now.mine) continue;
    if (spread.segments) {
      float* found = segment_row_of<float>(pass.workspace, pass.columns, group.pair, group.first_item + which,
                                           shape.features + shape.value_columns);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (in_features) found[column + i] = key_sum[i];
        if (in_values) found[shape.features + column + i] = value_sum[i];
      }
      continue;
    }
    if (in_features) {
      store_feature_gradient<T, kKind>(
          k_rows.at(now.row), key_sum,
          head_rows<T>(pass.grad_k, group.batch, group.head) + now.row * pass.grad_k.node_step + column);
    }
    if (in_values) {
      T* out = head_rows<T>(pass.grad_v, group.batch, group.head) + now.row * pass.grad_v.node_step + column;
      store_once(out, V::pack(value_sum));
    }
  }
}

}  // namespace topomask::row_attention
