#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "core/tensors.h"
#include "topomask/data.h"

namespace topomask {

template <>
std::span<const Word<FrameOrder>> words<FrameOrder>() {
  static constexpr Word<FrameOrder> kWords[] = {
      {FrameOrder::given, "given", "as in the clip"},
      {FrameOrder::shuffled, "shuffled", "all frames in a random order"},
      {FrameOrder::single, "single", "one random frame, repeated"},
  };
  return kWords;
}

at::Tensor reorder_frames(const Batch& batch, FrameOrder order, std::uint64_t seed) {
  if (order == FrameOrder::given) return batch.images;
  check(batch.images.dim() == 5, "reorder_frames: expected clips [B, T, C, H, W], got {}",
        describe(batch.images));
  constexpr std::uint32_t kFrames = 0x46524D45;  // "FRME"
  const std::int64_t count = batch.images.size(0), frames = batch.images.size(1);
  const std::int64_t* clip = batch.indices.const_data_ptr<std::int64_t>();
  const c10::Device device = batch.images.device();
  at::Tensor which =  // of all frames of the batch
      at::empty({count * frames}, at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda()));
  std::int64_t* frame = which.data_ptr<std::int64_t>();
  const std::uint64_t epoch_seed = derive_seed(seed, static_cast<std::uint64_t>(batch.epoch));
  for (std::int64_t i = 0; i < count; ++i, frame += frames) {
    RandomStream random(derive_seed(epoch_seed, static_cast<std::uint64_t>(clip[i])), kFrames);
    const auto below = [&](std::int64_t bound) {
      return static_cast<std::int64_t>(random.next_below(static_cast<std::uint64_t>(bound)));
    };
    if (order == FrameOrder::single) {
      std::fill_n(frame, frames, i * frames + below(frames));
      continue;
    }
    for (std::int64_t t = 0; t < frames; ++t) frame[t] = i * frames + t;
    for (std::int64_t t = frames - 1; t > 0; --t)
      std::swap(frame[t], frame[below(t + 1)]);  // Fisher and Yates
  }
  return batch.images.flatten(0, 1)
      .index_select(0, which.to(device, /*non_blocking=*/device.is_cuda()))
      .view(batch.images.sizes());
}

}  // namespace topomask
