// What the column kernels share: where the rows of a pair are, and what an entry weighs.
#pragma once

#include "attention/cuda/column_attention.h"
#include "attention/cuda/row_attention_device.cuh"

namespace topomask::columns {

using row_attention::from_real;
using row_attention::RealOf;
using row_attention::to_real;

// One (batch entry, head) of a pass.
template <class T>
struct PairOf {
  using R = RealOf<T>;
  const T *x, *y, *z;
  const R *key_value, *key_scale, *x_extra, *y_extra;

  __device__ PairOf(const ColumnPass& p, std::int64_t pair) {
    const std::int64_t batch = pair / p.heads, head = pair % p.heads;
    x = row_attention::head_rows<T>(p.x.rows, batch, head);
    y = row_attention::head_rows<T>(p.y.rows, batch, head);
    z = row_attention::head_rows<T>(p.z.rows, batch, head);
    const auto of_pair = [&](const void* all) {
      return all == nullptr ? nullptr : static_cast<const R*>(all) + pair * p.num_nodes;
    };
    key_value = p.key_value == nullptr ? nullptr
                                       : static_cast<const R*>(p.key_value) + head * p.key_value_step;
    key_scale = of_pair(p.key_scale);
    x_extra = of_pair(p.x_extra);
    y_extra = of_pair(p.y_extra);
  }

  // B_jc for the entry at `position` of column order, in row `node`.
  __device__ R weight(const ColumnEntries& keys, std::int64_t position, std::int64_t node) const {
    R w = 1;
    if (key_value != nullptr) w = key_value[keys.entry == nullptr ? position : keys.entry[position]];
    return key_scale == nullptr ? w : w * key_scale[node];
  }
  __device__ R extra_of_x(std::int64_t node) const { return x_extra == nullptr ? R{1} : x_extra[node]; }
  __device__ R extra_of_y(std::int64_t node) const { return y_extra == nullptr ? R{1} : y_extra[node]; }
};

__device__ inline std::int64_t node_at(const ColumnEntries& entries, std::int64_t position) {
  return entries.row == nullptr ? position : entries.row[position];
}
__device__ inline std::int64_t place_of(const ColumnEntries& entries, std::int64_t position) {
  return entries.entry == nullptr ? position : entries.entry[position];
}

// The part of a column that a block works on: positions in column order.
struct Span {
  std::int64_t begin, end;
};
__device__ inline Span span_of(const ColumnEntries& entries, std::int64_t column) {
  if (entries.ptr == nullptr) return {0, entries.nnz};
  return {entries.ptr[column], entries.ptr[column + 1]};
}

// Hubs, and their chunks; without a list there is one hub, column 0.
__device__ inline Span chunk_of(const ColumnEntries& entries, const ColumnWork& work,
                                const std::int32_t* chunk_ptr, std::int64_t hub, std::int64_t chunk,
                                std::int64_t size) {
  const Span all = span_of(entries, work.hub == nullptr ? 0 : work.hub[hub]);
  const std::int64_t begin = all.begin + (chunk - (chunk_ptr == nullptr ? 0 : chunk_ptr[hub])) * size;
  return {begin, min(all.end, begin + size)};
}
__device__ inline Span key_chunk(const ColumnPass& p, std::int64_t chunk) {
  const std::int64_t hub = p.work.key_chunk_hub == nullptr ? 0 : p.work.key_chunk_hub[chunk];
  return chunk_of(p.keys, p.work, p.work.key_chunk_ptr, hub, chunk, p.work.key_chunk);
}
__device__ inline std::int64_t hub_of_rows(const ColumnWork& work, std::int64_t chunk) {
  return work.row_chunk_hub == nullptr ? 0 : work.row_chunk_hub[chunk];
}
__device__ inline Span row_chunk(const ColumnPass& p, std::int64_t chunk) {
  return chunk_of(p.rows, p.work, p.work.row_chunk_ptr, hub_of_rows(p.work, chunk), chunk, p.work.row_chunk);
}
__device__ inline Span key_chunks_of(const ColumnWork& work, std::int64_t hub) {
  if (work.key_chunk_ptr == nullptr) return {0, work.num_key_chunks};
  return {work.key_chunk_ptr[hub], work.key_chunk_ptr[hub + 1]};
}

// max(x, 0) + epsilon where an operand asks for it.
template <class R>
__device__ inline R mapped(R x, bool relu, R epsilon) {
  return relu ? row_attention::relu(x) + epsilon : x;
}

// How a finished row is scaled: divided by the sum beside it, which is then kept, or times a factor.
template <class R>
__device__ inline R finished_scale(const ColumnRows& rows, std::int64_t index, R edge, bool writes) {
  if (rows.normalise) {
    const R inverse = row_attention::inverse_of(edge, static_cast<R>(rows.guard));
    if (writes && rows.inverse != nullptr) static_cast<R*>(rows.inverse)[index] = inverse;
    return inverse;
  }
  return rows.row_scale == nullptr ? R{1} : static_cast<const R*>(rows.row_scale)[index];
}

// The parts of a pass, for the types that they are compiled for. `direct`: instead of u, finished rows are
// written; for one column with all rows, and one block of features.
cudaError_t tensor_core_products(const ColumnPass& pass, const ColumnRows* direct, cudaStream_t stream);
std::int64_t tensor_core_workspace(const ColumnPass& pass);
cudaError_t general_products(const ColumnPass& pass, cudaStream_t stream);
std::int64_t general_workspace(const ColumnPass& pass);

}  // namespace topomask::columns
