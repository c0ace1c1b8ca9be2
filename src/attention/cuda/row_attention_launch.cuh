// Picks lanes and the kind of scores for the vector kernels of one type; included once per type.
#pragma once

#include <algorithm>

#include "attention/cuda/row_attention_kernels.h"
#include "attention/cuda/row_attention_vectors.cuh"

namespace topomask::row_attention {

// Fewer blocks than this leave part of the machine idle: then each does less.
constexpr std::int64_t kEnoughBlocks = 512;

template <int kLanes, class Kernel, class Pass>
cudaError_t launch_vectors(Kernel kernel, const Pass& pass, const DeviceRows& rows, bool segments,
                           cudaStream_t stream) {
  const std::int64_t pairs = pass.shape.batch * pass.shape.heads;
  const std::int64_t items = segments ? rows.num_segments : rows.num_rows;
  if (pairs * items == 0) return cudaSuccess;
  Spread spread;
  spread.segments = segments;
  spread.heads_per_warp = heads_of_a_warp(kLanes);
  while (pass.shape.heads % spread.heads_per_warp != 0) spread.heads_per_warp /= 2;
  const int side_by_side = kThreads / kLanes / spread.heads_per_warp;
  // Segments are long already, and few: one round of them a block.
  spread.items_per_block = segments ? side_by_side : std::min(128, kRowsTimesHeads / spread.heads_per_warp);
  const auto blocks = [&] {
    spread.item_blocks = (items + spread.items_per_block - 1) / spread.items_per_block;
    return spread.item_blocks * (pairs / spread.heads_per_warp);
  };
  while (blocks() < kEnoughBlocks && spread.items_per_block > side_by_side) spread.items_per_block /= 2;
  spread.items_per_block = std::max(spread.items_per_block, side_by_side);
  kernel<<<static_cast<unsigned>(blocks()), kThreads, 0, stream>>>(pass, spread);
  return cudaGetLastError();
}

// Calls run(lanes, kind) with both as compile-time constants.
template <class T, class Run>
cudaError_t with_lanes(const RowAttentionShape& shape, const Run& run) {
  const auto with_kind = [&](auto lanes) {
    switch (shape.rule.kind) {
      case ScoreKind::features:
        return run(lanes, std::integral_constant<ScoreKind, ScoreKind::features>{});
      case ScoreKind::relu:
        return run(lanes, std::integral_constant<ScoreKind, ScoreKind::relu>{});
      default:
        return run(lanes, std::integral_constant<ScoreKind, ScoreKind::softmax>{});
    }
  };
  const int lanes = lanes_for(std::max(shape.features, shape.value_columns) * sizeof(T));
  if (lanes == 4) return with_kind(std::integral_constant<int, 4>{});
  if (lanes == 8) return with_kind(std::integral_constant<int, 8>{});
  if (lanes == 16) return with_kind(std::integral_constant<int, 16>{});
  return with_kind(std::integral_constant<int, 32>{});
}

// Calls run(beside): how many heads stand side by side in the weights between the two backward halves.
template <int kLanes, class Run>
cudaError_t with_heads(const RowAttentionShape& shape, const Run& run) {
  constexpr int kMost = heads_of_a_warp(kLanes);
  if (shape.heads % kMost == 0) return run(std::integral_constant<int, kMost>{});
  return run(std::integral_constant<int, 1>{});
}

template <class T>
cudaError_t launch_forward(const RowAttentionForward& pass, bool segments, cudaStream_t stream) {
  return with_lanes<T>(pass.shape, [&](auto lanes, auto kind) {
    return launch_vectors<lanes>(forward_rows<T, lanes, kind>, pass, pass.mask, segments, stream);
  });
}

template <class T>
cudaError_t launch_backward_rows(const RowAttentionBackward& pass, bool segments, cudaStream_t stream) {
  return with_lanes<T>(pass.shape, [&](auto lanes, auto kind) {
    return with_heads<lanes>(pass.shape, [&](auto beside) {
      const auto kernel = row_attention_summed_heads(pass) == 1
                              ? backward_rows<T, lanes, kind, beside, 1>
                              : backward_rows<T, lanes, kind, beside, beside>;
      return launch_vectors<lanes>(kernel, pass, pass.mask, segments, stream);
    });
  });
}

template <class T>
cudaError_t launch_backward_columns(const RowAttentionBackward& pass, bool segments, cudaStream_t stream) {
  return with_lanes<T>(pass.shape, [&](auto lanes, auto kind) {
    // Scores are not formed here: softmax needs nothing that features do not.
    constexpr ScoreKind kKind = kind == ScoreKind::relu ? ScoreKind::relu : ScoreKind::features;
    return with_heads<lanes>(pass.shape, [&](auto beside) {
      return launch_vectors<lanes>(backward_columns<T, lanes, kKind, beside>, pass, pass.columns, segments,
                                   stream);
    });
  });
}

#define TOPOMASK_DEFINE_VECTORS(name, T)                                                                   \
  cudaError_t launch_forward_##name(const RowAttentionForward& pass, bool segments, cudaStream_t stream) { \
    return launch_forward<T>(pass, segments, stream);                                                      \
  }                                                                                                        \
  cudaError_t launch_backward_rows_##name(const RowAttentionBackward& pass, bool segments,                 \
                                          cudaStream_t stream) {                                           \
    return launch_backward_rows<T>(pass, segments, stream);                                                \
  }                                                                                                        \
  cudaError_t launch_backward_columns_##name(const RowAttentionBackward& pass, bool segments,              \
                                             cudaStream_t stream) {                                        \
    return launch_backward_columns<T>(pass, segments, stream);                                             \
  }

}  // namespace topomask::row_attention
