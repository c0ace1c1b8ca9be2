// Picks lanes and mode for the vector kernels of one type; included once per type.
#pragma once

#include <algorithm>

#include "attention/cuda/row_attention_kernels.h"
#include "attention/cuda/row_attention_vectors.cuh"

namespace topomask::row_attention {

template <class T, int kLanes, class Kernel, class Pass>
cudaError_t launch_vectors(Kernel kernel, const Pass& pass, const DeviceRows& rows, bool segments,
                           const Spread& wanted, cudaStream_t stream) {
  Spread spread = wanted;
  spread.segments = segments;
  if (pass.shape.heads % spread.heads_per_warp != 0 || 32 / kLanes < spread.heads_per_warp)
    spread.heads_per_warp = 1;
  const std::int64_t items = segments ? rows.num_segments : rows.num_rows;
  const int side_by_side = kThreads / kLanes / spread.heads_per_warp;
  // Segments are long already, and few: one round of them a block.
  if (segments) spread.items_per_block = side_by_side;
  spread.items_per_block = std::clamp(spread.items_per_block, side_by_side, kThreads);
  spread.item_blocks = (items + spread.items_per_block - 1) / spread.items_per_block;
  const std::int64_t blocks =
      spread.item_blocks * pass.shape.batch * (pass.shape.heads / spread.heads_per_warp);
  if (blocks == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(pass, spread);
  return cudaGetLastError();
}

// Calls run(lanes, mode) with both as compile-time constants.
template <class T, class Run>
cudaError_t with_lanes(const RowAttentionShape& shape, const Run& run) {
  const auto with_mode = [&](auto lanes) {
    switch (mode_of(shape)) {
      case Mode::linear:
        return run(lanes, std::integral_constant<Mode, Mode::linear>{});
      case Mode::relu:
        return run(lanes, std::integral_constant<Mode, Mode::relu>{});
      default:
        return run(lanes, std::integral_constant<Mode, Mode::softmax>{});
    }
  };
  const std::int64_t columns = std::max(shape.features, shape.value_columns);
  const std::int64_t vectors = (columns + Vector<T>::kWidth - 1) / Vector<T>::kWidth;
  if (vectors <= 4) return with_mode(std::integral_constant<int, 4>{});
  if (vectors <= 8) return with_mode(std::integral_constant<int, 8>{});
  if (vectors <= 16) return with_mode(std::integral_constant<int, 16>{});
  return with_mode(std::integral_constant<int, 32>{});
}

using ForwardTune = Tune<8, true, 2>;
using BackwardTune = Tune<8, true, 2>;
using ColumnTune = Tune<8, true, 2>;

template <class T>
cudaError_t launch_forward(const RowAttentionForward& pass, bool segments, cudaStream_t stream) {
  return with_lanes<T>(pass.shape, [&](auto lanes, auto mode) {
    return launch_vectors<T, lanes>(forward_rows<T, lanes, mode, ForwardTune>, pass, pass.mask, segments,
                                    Spread(), stream);
  });
}

template <class T>
cudaError_t launch_backward_rows(const RowAttentionBackward& pass, bool segments, cudaStream_t stream) {
  return with_lanes<T>(pass.shape, [&](auto lanes, auto mode) {
    return launch_vectors<T, lanes>(backward_rows<T, lanes, mode, BackwardTune>, pass, pass.mask, segments,
                                    Spread(), stream);
  });
}

template <class T>
cudaError_t launch_backward_columns(const RowAttentionBackward& pass, bool segments, cudaStream_t stream) {
  return with_lanes<T>(pass.shape, [&](auto lanes, auto mode) {
    // Scores are not formed here: softmax is as good as linear.
    constexpr Mode kMode = mode == Mode::relu ? Mode::relu : Mode::linear;
    return launch_vectors<T, lanes>(backward_columns<T, lanes, kMode, ColumnTune>, pass, pass.columns,
                                    segments, Spread(), stream);
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
