#include "attention/cuda/row_attention_tensor.cuh"

#include "attention/cuda/row_attention_kernels.h"

namespace topomask::row_attention {

namespace {

template <class Kernel, class Pass>
cudaError_t launch(Kernel kernel, const Pass& pass, const DeviceRows& rows, bool segments,
                   cudaStream_t stream) {
  tensor::Blocks blocks;
  blocks.segments = segments;
  if (segments) blocks.items_per_block = tensor::kWarps;  // long already, and few
  const std::int64_t items = segments ? rows.num_segments : rows.num_rows;
  blocks.item_blocks = (items + blocks.items_per_block - 1) / blocks.items_per_block;
  const std::int64_t count = blocks.item_blocks * pass.shape.batch * pass.shape.heads;
  if (count == 0) return cudaSuccess;
  kernel<<<static_cast<unsigned>(count), tensor::kThreads, 0, stream>>>(pass, blocks);
  return cudaGetLastError();
}

// Calls run(mode, wide) with both as compile-time constants.
template <class Run>
cudaError_t with_mode(const RowAttentionShape& shape, const Run& run) {
  const auto with_width = [&](auto mode) {
    return shape.features == 64 ? run(mode, std::integral_constant<int, 1>{})
                                : run(mode, std::integral_constant<int, 2>{});
  };
  switch (mode_of(shape)) {
    case Mode::linear:
      return with_width(std::integral_constant<Mode, Mode::linear>{});
    case Mode::relu:
      return with_width(std::integral_constant<Mode, Mode::relu>{});
    default:
      return with_width(std::integral_constant<Mode, Mode::softmax>{});
  }
}

}  // namespace

bool fits_tensor_cores(Real dtype, const RowAttentionShape& shape) {
  return dtype == Real::bfloat16 && shape.features == shape.value_columns &&
         (shape.features == 64 || shape.features == 128);
}

cudaError_t launch_forward_tensor(const RowAttentionForward& pass, bool segments, cudaStream_t stream) {
  return with_mode(pass.shape, [&](auto mode, auto wide) {
    return launch(tensor::forward_rows<mode, wide, 2>, pass, pass.mask, segments, stream);
  });
}

cudaError_t launch_backward_rows_tensor(const RowAttentionBackward& pass, bool segments,
                                        cudaStream_t stream) {
  return with_mode(pass.shape, [&](auto mode, auto wide) {
    return launch(tensor::backward_rows<mode, wide, 2>, pass, pass.mask, segments, stream);
  });
}

cudaError_t launch_backward_columns_tensor(const RowAttentionBackward& pass, bool segments,
                                           cudaStream_t stream) {
  return with_mode(pass.shape, [&](auto mode, auto wide) {
    constexpr Mode kMode = mode == Mode::relu ? Mode::relu : Mode::linear;  // no scores are formed here
    return launch(tensor::backward_columns<kMode, wide, 2>, pass, pass.columns, segments, stream);
  });
}

}  // namespace topomask::row_attention
