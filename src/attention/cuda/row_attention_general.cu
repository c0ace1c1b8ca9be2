// Any number of columns, any alignment, float64: one warp per row and head, one number per lane. Rows wider
// than kTile are computed in tiles, each of which forms the products again.
#include "attention/cuda/row_attention_device.cuh"
#include "attention/cuda/row_attention_kernels.h"

namespace topomask::row_attention {

namespace {

constexpr int kThreads = 256, kHeld = 8, kTile = kHeld * kWarpSize;

struct Place {
  int lane;
  std::int64_t pair, batch, head, item, tile;
};

// Blocks run over items first, then tiles, then pairs.
__device__ Place place_of(const RowAttentionShape& shape, std::int64_t item_blocks, std::int64_t tiles) {
  Place place;
  place.lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t block = blockIdx.x;
  place.item = block % item_blocks * (kThreads / kWarpSize) + static_cast<int>(threadIdx.x) / kWarpSize;
  place.tile = block / item_blocks % tiles;
  place.pair = block / item_blocks / tiles;
  place.batch = place.pair / shape.heads;
  place.head = place.pair % shape.heads;
  return place;
}

template <class T>
__device__ RealOf<T> feature(T x, bool relu, RealOf<T> epsilon) {
  const RealOf<T> real = to_real(x);
  return relu ? row_attention::relu(real) + epsilon : real;
}

template <class T>
__device__ RealOf<T> feature_dot(const T* a, const T* b, std::int64_t size, bool relu, RealOf<T> epsilon,
                                 int lane) {
  RealOf<T> sum = 0;
  for (std::int64_t c = lane; c < size; c += kWarpSize)
    sum += feature(a[c], relu, epsilon) * feature(b[c], relu, epsilon);
  return sum_lanes(sum);
}

// sum += weight phi(row) over this lane's columns of the tile.
template <class T>
__device__ void add_row(RealOf<T> weight, const T* row, std::int64_t first, std::int64_t size, bool relu,
                        RealOf<T> epsilon, RealOf<T> (&sum)[kHeld]) {
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const std::int64_t c = first + i * kWarpSize;
    if (c < size) sum[i] += weight * feature(row[c], relu, epsilon);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) general_forward(const __grid_constant__ RowAttentionForward pass,
                                                            std::int64_t item_blocks, bool segments) {
  using R = RealOf<T>;
  const RowAttentionShape& shape = pass.shape;
  const std::int64_t m = shape.features, d_v = shape.value_columns, tiles = (d_v + kTile - 1) / kTile;
  const Place at = place_of(shape, item_blocks, tiles);
  const Item item = item_at(pass.mask, at.item, segments);
  if (!item.mine) return;
  const T* q = head_rows<const T>(pass.q, at.batch, at.head) + item.row * pass.q.node_step;
  const T* k = head_rows<const T>(pass.k, at.batch, at.head);
  const T* v = head_rows<const T>(pass.v, at.batch, at.head);
  const R* value = static_cast<const R*>(pass.value) + at.head * pass.value_step;
  R* dots =
      pass.dot == nullptr || at.tile > 0 ? nullptr : static_cast<R*>(pass.dot) + at.pair * pass.mask.nnz;
  const R epsilon = static_cast<R>(shape.rule.epsilon), scale = static_cast<R>(shape.rule.scale);
  const std::int64_t first_column = at.tile * kTile + at.lane;
  R sum[kHeld] = {}, normaliser = 0, row_max = -INFINITY;
  for (std::int64_t p = item.first; p < item.first + item.count; ++p) {
    const std::int64_t j = pass.mask.col[p];
    const R product = feature_dot(q, k + j * pass.k.node_step, m, shape.rule.is_relu(), epsilon, at.lane);
    if (dots != nullptr && at.lane == 0) dots[p] = product;
    R weight = product * value[p];
    if (shape.rule.is_softmax()) {
      const R score = value[p] == 0 ? -INFINITY : product * scale;
      const R new_max = max(row_max, score);
      const R shrink = row_max == new_max ? R{1} : exp(row_max - new_max);
      row_max = new_max;
      normaliser *= shrink;
#pragma unroll
      for (R& x : sum) x *= shrink;
      weight = exp(score - shift_of(new_max)) * value[p];
    }
    normaliser += weight;
    add_row<T>(weight, v + j * pass.v.node_step, first_column, d_v, false, 0, sum);
  }
  if (segments) {
    R* found = segment_row_of<R>(pass.workspace, pass.mask, at.pair, at.item, d_v + 2);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (first_column + i * kWarpSize < d_v) found[first_column + i * kWarpSize] = sum[i];
    }
    if (first_column == 0) {
      found[d_v] = normaliser;
      found[d_v + 1] = row_max;
    }
    return;
  }
  const R inverse = inverse_of(normaliser, static_cast<R>(shape.rule.guard));
  if (first_column == 0) {
    static_cast<R*>(pass.inverse)[at.pair * pass.mask.num_rows + item.row] = inverse;
    if (shape.rule.is_softmax())
      static_cast<R*>(pass.row_max)[at.pair * pass.mask.num_rows + item.row] = shift_of(row_max);
  }
  T* out = head_rows<T>(pass.out, at.batch, at.head) + item.row * pass.out.node_step;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (first_column + i * kWarpSize < d_v)
      out[first_column + i * kWarpSize] = from_real<T>(sum[i] * inverse);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    general_backward_rows(const __grid_constant__ RowAttentionBackward pass, std::int64_t item_blocks,
                          bool segments) {
  using R = RealOf<T>;
  const RowAttentionShape& shape = pass.shape;
  const std::int64_t m = shape.features, d_v = shape.value_columns, tiles = (m + kTile - 1) / kTile;
  const Place at = place_of(shape, item_blocks, tiles);
  const Item item = item_at(pass.mask, at.item, segments);
  if (!item.mine) return;
  const T* g = head_rows<const T>(pass.grad_out, at.batch, at.head) + item.row * pass.grad_out.node_step;
  const T* out = head_rows<const T>(pass.out, at.batch, at.head) + item.row * pass.out.node_step;
  const T* k = head_rows<const T>(pass.k, at.batch, at.head);
  const T* v = head_rows<const T>(pass.v, at.batch, at.head);
  const R* value = static_cast<const R*>(pass.value) + at.head * pass.value_step;
  const std::int64_t entries = at.pair * pass.mask.nnz, row_at = at.pair * pass.mask.num_rows + item.row;
  const R* dots = static_cast<const R*>(pass.dot) + entries;
  R* grad_value = pass.grad_value == nullptr ? nullptr : static_cast<R*>(pass.grad_value) + entries;
  R* weights = static_cast<R*>(pass.weights) + 2 * entries;
  const R epsilon = static_cast<R>(shape.rule.epsilon), scale = static_cast<R>(shape.rule.scale);
  const R inverse = static_cast<const R*>(pass.inverse)[row_at];
  const R row_max = shape.rule.is_softmax() ? static_cast<const R*>(pass.row_max)[row_at] : R{0};
  const R along_out = feature_dot<T>(g, out, d_v, false, 0, at.lane);
  const std::int64_t first_column = at.tile * kTile + at.lane;
  R sum[kHeld] = {};
  for (std::int64_t p = item.first; p < item.first + item.count; ++p) {
    const std::int64_t j = pass.mask.col[p];
    const R slope = feature_dot<T>(g, v + j * pass.v.node_step, d_v, false, 0, at.lane);
    const R grad_score = (slope - along_out) * inverse;
    R score = dots[p], grad = grad_score * score, key_weight = grad_score * value[p];
    if (shape.rule.is_softmax()) {
      const R half = half_exponential(score * scale - row_max);
      score = value[p] == 0 ? R{0} : half * half;
      grad = grad_score * half * half;
      key_weight *= score * scale;
    }
    if (first_column == 0) {
      if (grad_value != nullptr) grad_value[p] = grad;
      weights[2 * p] = key_weight;
      weights[2 * p + 1] = value[p] * score * inverse;
    }
    add_row<T>(key_weight, k + j * pass.k.node_step, first_column, m, shape.rule.is_relu(), epsilon, sum);
  }
  const T* q = head_rows<const T>(pass.q, at.batch, at.head) + item.row * pass.q.node_step;
  T* grad_q = head_rows<T>(pass.grad_q, at.batch, at.head) + item.row * pass.grad_q.node_step;
  R* found = segments ? segment_row_of<R>(pass.workspace, pass.mask, at.pair, at.item, m) : nullptr;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const std::int64_t c = first_column + i * kWarpSize;
    if (c >= m) continue;
    if (segments) {
      found[c] = sum[i];
    } else {
      grad_q[c] = from_real<T>(shape.rule.is_relu() && !(to_real(q[c]) >= 0) ? R{0} : sum[i]);
    }
  }
}

// Features and values stand side by side: [features | value columns].
template <class T>
__global__ void __launch_bounds__(kThreads)
    general_backward_columns(const __grid_constant__ RowAttentionBackward pass, std::int64_t item_blocks,
                             bool segments) {
  using R = RealOf<T>;
  const RowAttentionShape& shape = pass.shape;
  const std::int64_t m = shape.features, d_v = shape.value_columns, tiles = (m + kTile - 1) / kTile,
                     v_tiles = (d_v + kTile - 1) / kTile;
  const Place at = place_of(shape, item_blocks, tiles + v_tiles);
  const Item item = item_at(pass.columns, at.item, segments);
  if (!item.mine) return;
  const bool keys = at.tile < tiles;  // this warp computes grad_k, or else grad_v
  const Rows4 &gathered = keys ? pass.q : pass.grad_out, &result = keys ? pass.grad_k : pass.grad_v;
  const T* rows = head_rows<const T>(gathered, at.batch, at.head);
  const R* weights = static_cast<const R*>(pass.weights) + 2 * at.pair * pass.mask.nnz + (keys ? 0 : 1);
  const R epsilon = static_cast<R>(shape.rule.epsilon);
  const bool relu = keys && shape.rule.is_relu();
  const std::int64_t size = keys ? m : d_v;
  const std::int64_t first_column = (keys ? at.tile : at.tile - tiles) * kTile + at.lane;
  R sum[kHeld] = {};
  for (std::int64_t p = item.first; p < item.first + item.count; ++p) {
    add_row<T>(weights[2 * pass.columns.entry[p]], rows + pass.columns.col[p] * gathered.node_step,
               first_column, size, relu, epsilon, sum);
  }
  const T* k = head_rows<const T>(pass.k, at.batch, at.head) + item.row * pass.k.node_step;
  T* out = head_rows<T>(result, at.batch, at.head) + item.row * result.node_step;
  R* found = segments
                 ? segment_row_of<R>(pass.workspace, pass.columns, at.pair, at.item, m + d_v) + (keys ? 0 : m)
                 : nullptr;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const std::int64_t c = first_column + i * kWarpSize;
    if (c >= size) continue;
    if (segments) {
      found[c] = sum[i];
    } else {
      out[c] = from_real<T>(relu && !(to_real(k[c]) >= 0) ? R{0} : sum[i]);
    }
  }
}

std::int64_t tiles_of(std::int64_t columns) {
  return (columns + kTile - 1) / kTile;
}

template <class Kernel, class Pass>
cudaError_t launch(Kernel kernel, const Pass& pass, const DeviceRows& rows, bool segments, std::int64_t tiles,
                   cudaStream_t stream) {
  const std::int64_t items = segments ? rows.num_segments : rows.num_rows;
  const std::int64_t item_blocks = (items + kThreads / kWarpSize - 1) / (kThreads / kWarpSize);
  const std::int64_t blocks = item_blocks * tiles * pass.shape.batch * pass.shape.heads;
  if (blocks == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(pass, item_blocks, segments);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_general_forward(const RowAttentionForward& pass, bool segments, cudaStream_t stream) {
  return with_type(pass.dtype, [&](auto zero) {
    return launch(general_forward<decltype(zero)>, pass, pass.mask, segments,
                  tiles_of(pass.shape.value_columns), stream);
  });
}

cudaError_t launch_general_backward_rows(const RowAttentionBackward& pass, bool segments,
                                         cudaStream_t stream) {
  return with_type(pass.dtype, [&](auto zero) {
    return launch(general_backward_rows<decltype(zero)>, pass, pass.mask, segments,
                  tiles_of(pass.shape.features), stream);
  });
}

cudaError_t launch_general_backward_columns(const RowAttentionBackward& pass, bool segments,
                                            cudaStream_t stream) {
  return with_type(pass.dtype, [&](auto zero) {
    return launch(general_backward_columns<decltype(zero)>, pass, pass.columns, segments,
                  tiles_of(pass.shape.features) + tiles_of(pass.shape.value_columns), stream);
  });
}

}  // namespace topomask::row_attention
