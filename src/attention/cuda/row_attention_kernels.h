// The launches behind row_attention.h: each over all rows but the long ones, or over the segments of those.
#pragma once

#include <algorithm>

#include "attention/cuda/row_attention.h"

namespace topomask::row_attention {

cudaError_t launch_general_forward(const RowAttentionForward& pass, bool segments, cudaStream_t stream);
cudaError_t launch_general_backward_rows(const RowAttentionBackward& pass, bool segments,
                                         cudaStream_t stream);
cudaError_t launch_general_backward_columns(const RowAttentionBackward& pass, bool segments,
                                            cudaStream_t stream);

// Rows of at most kLanes vectors of 16 bytes, aligned; one function per type, so that they compile side by
// side.
#define TOPOMASK_DECLARE_VECTORS(name)                                                               \
  cudaError_t launch_forward_##name(const RowAttentionForward&, bool segments, cudaStream_t);        \
  cudaError_t launch_backward_rows_##name(const RowAttentionBackward&, bool segments, cudaStream_t); \
  cudaError_t launch_backward_columns_##name(const RowAttentionBackward&, bool segments, cudaStream_t)
TOPOMASK_DECLARE_VECTORS(float32);
TOPOMASK_DECLARE_VECTORS(bfloat16);
TOPOMASK_DECLARE_VECTORS(float16);
#undef TOPOMASK_DECLARE_VECTORS

// Columns that the vector kernels of a type can take.
constexpr std::int64_t kMaxVectorBytes = 512;  // a warp of 16-byte vectors

// Lanes that share a row of this many bytes, one vector each.
constexpr int lanes_for(std::int64_t bytes) {
  int lanes = 4;
  while (16 * lanes < bytes) lanes *= 2;
  return lanes;
}

// Heads of one row that neighbouring groups of lanes work on, where their number is a multiple of it.
// Four leave weights of 32 bytes for an entry of the mask, the least that memory moves.
constexpr int heads_of_a_warp(int lanes) {
  return std::min(4, 32 / lanes);
}

}  // namespace topomask::row_attention
