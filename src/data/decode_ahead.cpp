#include "data/decode_ahead.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "core/check.h"
#include "core/random.h"
#include "data/io/image_folder.h"
#include "data/io/video.h"

namespace topomask {

DecodeAhead::DecodeAhead(const ImageSet& set, at::Tensor order, const DecodeOptions& options)
    : set_(set), order_(order.contiguous()), options_(options) {
  check(set.height == set.width && set.channels == 3,
        "DecodeAhead: expected square images of 3 channels, got {} x {} x {}", set.channels, set.height,
        set.width);
  next_ = std::min(order_.size(0), options.start_batch * options.batch_size);
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int workers = options.workers > 0 ? options.workers : cores;
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
}

DecodeAhead::~DecodeAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Threads take single images rather than batches, so that the batch that is needed next is ready first.
void DecodeAhead::work() {
  std::unique_lock lock(mutex_);
  while (const auto task = wait_for_task(lock)) {
    lock.unlock();
    std::exception_ptr error;
    try {
      decode(*task);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    task->slot->errors[static_cast<std::size_t>(task->place)] = error;
    if (--task->slot->left == 0) ready_.notify_one();
  }
}

std::optional<DecodeAhead::Task> DecodeAhead::wait_for_task(std::unique_lock<std::mutex>& lock) {
  while (true) {
    if (stopping_ || next_ >= order_.size(0)) return std::nullopt;
    const bool inside = !slots_.empty() && next_ < slots_.back().first + slots_.back().count;
    if (inside) break;
    if (static_cast<int>(slots_.size()) < options_.prefetch) {
      const std::int64_t count = std::min(options_.batch_size, order_.size(0) - next_);
      Slot& slot = slots_.emplace_back();
      slot.first = next_, slot.count = slot.left = count;
      slot.errors.resize(static_cast<std::size_t>(count));
      try {
        std::vector<std::int64_t> sizes = set_.sample_sizes();
        sizes.insert(sizes.begin(), count);
        slot.images = at::empty(sizes, at::TensorOptions().dtype(at::kByte).pinned_memory(options_.pinned));
      } catch (...) {  // no memory: the batch passes the error on, and no further batch is begun
        slot.errors[0] = std::current_exception();
        slot.left = 0;
        next_ = order_.size(0);
        ready_.notify_one();
      }
      if (slot.left > 0) break;
      continue;
    }
    room_.wait(lock);
  }
  Slot& slot = slots_.back();
  return Task{&slot, next_++ - slot.first};
}

void DecodeAhead::decode(const Task& task) {
  const std::int64_t place = task.slot->first + task.place;
  CropChoice crop{set_.min_crop_area, std::nullopt};
  if (options_.crop_seed) {
    const at::Tensor& places = options_.crop_places;
    crop.seed = derive_seed(
        *options_.crop_seed,
        static_cast<std::uint64_t>(places.defined() ? places.const_data_ptr<std::int64_t>()[place] : place));
  }
  const std::int64_t index = order_.const_data_ptr<std::int64_t>()[place];
  const std::int64_t bytes = set_.frames * set_.channels * set_.height * set_.width;
  const std::string& file = set_.files[static_cast<std::size_t>(index)];
  std::uint8_t* out = task.slot->images.data_ptr<std::uint8_t>() + task.place * bytes;
  const auto size = static_cast<int>(set_.height);
  if (set_.frames == 1) {
    load_image(file, size, crop, out);
  } else {
    load_clip(file, {static_cast<int>(set_.frames), static_cast<int>(set_.stride), size, crop}, out);
  }
}

std::optional<DecodedBatch> DecodeAhead::next() {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [this] { return slots_.empty() ? next_ >= order_.size(0) : slots_.front().left == 0; });
  if (slots_.empty()) return std::nullopt;
  Slot slot = std::move(slots_.front());
  slots_.pop_front();
  lock.unlock();
  room_.notify_all();
  return collect(slot);
}

DecodedBatch DecodeAhead::collect(Slot& slot) const {
  DecodedBatch batch{std::move(slot.images), order_.narrow(0, slot.first, slot.count), 0};
  std::vector<std::int64_t> good;
  for (std::int64_t i = 0; i < slot.count; ++i) {
    const std::exception_ptr error = slot.errors[static_cast<std::size_t>(i)];
    if (!error) {
      good.push_back(i);
      continue;
    }
    try {
      std::rethrow_exception(error);
    } catch (const Error&) {  // anything else, such as a lack of memory, is not the image's fault
      if (!options_.skip_bad) throw;
      ++batch.bad;
    }
  }
  if (batch.bad > 0) {
    const at::Tensor kept = at::tensor(good, at::kLong);
    batch.images = batch.images.index_select(0, kept);
    batch.indices = batch.indices.index_select(0, kept);
  }
  return batch;
}

}  // namespace topomask
