// Threads that decode the images of a streamed set before they are needed, batch by batch and in order.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "topomask/data.h"

namespace topomask {

struct DecodeOptions {
  std::int64_t batch_size = 64;
  std::int64_t start_batch = 0;
  int workers = 0;      // 0: one per core
  int prefetch = 4;     // batches begun but not yet asked for
  bool pinned = false;  // memory from which a GPU can copy without waiting
  bool skip_bad = false;
  // Random crops: image k of the order with derive_seed(seed, k), or derive_seed(seed, crop_places[k]).
  std::optional<std::uint64_t> crop_seed;
  at::Tensor crop_places = {};  // [M] int64 on the CPU, or undefined
};

struct DecodedBatch {
  at::Tensor images;     // [B, 3, H, W] or [B, T, 3, H, W] uint8 on the CPU
  at::Tensor indices;    // [B] int64
  std::int64_t bad = 0;  // images left out
};

class DecodeAhead {
 public:
  // `order` ([M] int64 on the CPU) says which images of the set, one batch after the other.
  DecodeAhead(const ImageSet& set, at::Tensor order, const DecodeOptions& options);
  ~DecodeAhead();
  DecodeAhead(const DecodeAhead&) = delete;
  DecodeAhead& operator=(const DecodeAhead&) = delete;

  // Nothing at the end of the order. Throws what was thrown for the first bad image of the batch.
  std::optional<DecodedBatch> next();

 private:
  struct Slot {
    at::Tensor images;
    std::int64_t first = 0, count = 0, left = 0;  // places in the order; images not yet decoded
    std::vector<std::exception_ptr> errors;       // [count]
  };
  // One image: its batch and its place there.
  struct Task {
    Slot* slot;
    std::int64_t place;
  };

  void work();
  std::optional<Task> wait_for_task(std::unique_lock<std::mutex>& lock);
  void decode(const Task& task);
  DecodedBatch collect(Slot& slot) const;

  const ImageSet& set_;
  at::Tensor order_;
  DecodeOptions options_;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::deque<Slot> slots_;  // begun and not yet asked for, in order; elements stay where they are
  std::int64_t next_ = 0;   // place in the order of the next image to be decoded
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace topomask
