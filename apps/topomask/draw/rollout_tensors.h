// Frames of a rollout from tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/check.h"
#include "core/tensors.h"
#include "draw/rollout.h"

namespace topomask::cli {

// truth, predicted: [T, C, H, W, 3], uint8 or floating point from 0 to 1 (what is beyond is cut off).
inline RolloutFrames rollout_frames(const at::Tensor& truth, const at::Tensor& predicted) {
  for (const at::Tensor* x : {&truth, &predicted})
    check(x->defined() && x->dim() == 5 && x->size(4) == 3 && x->sizes() == truth.sizes() &&
              (x->scalar_type() == at::kByte || x->is_floating_point()),
          "rollout: expected two tensors [T, C, H, W, 3] of uint8 or floating point, got {}",
          x->defined() ? describe(*x) : "none");
  const auto bytes = [](const at::Tensor& x) {
    at::Tensor values = x.detach().cpu();
    if (values.is_floating_point())
      values = values.to(at::kDouble).nan_to_num(0).clamp(0, 1).mul(255).round();
    values = values.to(at::kByte).contiguous();
    const auto* first = values.const_data_ptr<std::uint8_t>();
    return std::vector<std::uint8_t>(first, first + values.numel());
  };
  return {static_cast<int>(truth.size(0)),
          static_cast<int>(truth.size(1)),
          static_cast<int>(truth.size(2)),
          static_cast<int>(truth.size(3)),
          bytes(truth),
          bytes(predicted)};
}

}  // namespace topomask::cli
