#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "core/random.h"
#include "data/decode_ahead.h"
#include "topomask/data.h"

namespace topomask {
namespace {

constexpr std::uint32_t kOrder = 0x4F524452;      // "ORDR"
constexpr std::uint64_t kCropSeeds = 0x43524F50;  // tells the seeds of crops from those of orders

}  // namespace

at::Tensor epoch_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  check(size >= 0 && epoch >= 0, "epoch_order: expected a size and an epoch of at least 0, got {} and {}",
        size, epoch);
  at::Tensor order = at::arange(size, at::kLong);
  std::int64_t* index = order.data_ptr<std::int64_t>();
  RandomStream random(derive_seed(seed, static_cast<std::uint64_t>(epoch)), kOrder);
  for (std::int64_t i = size - 1; i > 0; --i) {  // Fisher and Yates
    std::swap(index[i], index[random.next_below(static_cast<std::uint64_t>(i) + 1)]);
  }
  return order;
}

class BatchLoader::Implementation {
 public:
  Implementation(const ImageSet& set, const LoaderOptions& options) : set_(set), options_(options) {
    check(set.size() > 0, "BatchLoader: the set holds no images");
    check(options.batch_size >= 1, "BatchLoader: batch_size must be at least 1, got {}", options.batch_size);
    check(options.prefetch >= 1, "BatchLoader: prefetch must be at least 1, got {}", options.prefetch);
    check(options.workers >= 0, "BatchLoader: workers must be at least 0, got {}", options.workers);
    // A set smaller than a batch is one batch.
    batch_size_ = std::min(options.batch_size, set.size());
    if (set.resident()) images_ = set.images.to(options.device);
    labels_ = set.labels.to(options.device);
    start_epoch(0, 0);
  }

  bool training() const { return options_.mode == LoaderMode::training; }

  std::int64_t batches_per_epoch() const {
    return training() ? set_.size() / batch_size_ : (set_.size() + batch_size_ - 1) / batch_size_;
  }

  void start_epoch(std::int64_t epoch, std::int64_t start_batch) {
    check(epoch >= 0, "BatchLoader: epoch must be at least 0, got {}", epoch);
    check(start_batch >= 0 && start_batch <= batches_per_epoch(),
          "BatchLoader: an epoch has {} batches, cannot start at batch {}", batches_per_epoch(), start_batch);
    decoder_.reset();  // before what its threads read changes
    epoch_ = epoch, step_ = start_batch, skipped_ = 0;
    order_ = training() ? epoch_order(set_.size(), options_.seed, epoch) : at::arange(set_.size(), at::kLong);
    if (training()) order_ = order_.narrow(0, 0, batches_per_epoch() * batch_size_);
    if (set_.resident()) device_order_ = order_.to(options_.device);
  }

  std::optional<Batch> next() {
    if (step_ >= batches_per_epoch()) return std::nullopt;
    Batch batch = set_.resident() ? gather() : decode();
    batch.epoch = epoch_;
    batch.step = step_++;
    return batch;
  }

  std::int64_t skipped() const { return skipped_; }

 private:
  Batch gather() const {
    const std::int64_t first = step_ * batch_size_, count = std::min(batch_size_, order_.size(0) - first);
    const at::Tensor which = device_order_.narrow(0, first, count);
    return {images_.index_select(0, which), labels_.index_select(0, which), order_.narrow(0, first, count)};
  }

  Batch decode() {
    if (!decoder_) start_decoder();
    DecodedBatch decoded = next_decoded();
    skipped_ += decoded.bad;
    const bool asynchronous = options_.device.is_cuda();
    at::Tensor labels = set_.labels.index_select(0, decoded.indices);
    if (asynchronous) labels = labels.pin_memory();
    return {decoded.images.to(options_.device, asynchronous), labels.to(options_.device, asynchronous),
            decoded.indices};
  }

  // Whoever catches the error and asks again gets the same batch.
  DecodedBatch next_decoded() {
    try {
      return decoder_->next().value();
    } catch (...) {
      decoder_.reset();
      throw;
    }
  }

  // Only when the first batch is asked for: a loader that is about to be moved elsewhere in the epoch decodes
  // nothing in vain.
  void start_decoder() {
    DecodeOptions decode;
    decode.batch_size = batch_size_;
    decode.start_batch = step_;
    decode.workers = options_.workers;
    decode.prefetch = options_.prefetch;
    decode.pinned = options_.device.is_cuda();
    decode.skip_bad = options_.skip_bad;
    if (training()) {
      decode.crop_seed =
          derive_seed(derive_seed(options_.seed, kCropSeeds), static_cast<std::uint64_t>(epoch_));
    }
    decoder_ = std::make_unique<DecodeAhead>(set_, order_, decode);
  }

  const ImageSet set_;  // its tensors are shared, not copied
  LoaderOptions options_;
  std::int64_t batch_size_ = 0, epoch_ = 0, step_ = 0, skipped_ = 0;
  at::Tensor images_;                // on the device, where the set is resident
  at::Tensor labels_;                // on the device
  at::Tensor order_, device_order_;  // of this epoch
  std::unique_ptr<DecodeAhead> decoder_;
};

BatchLoader::BatchLoader(const ImageSet& set, const LoaderOptions& options)
    : implementation_(std::make_unique<Implementation>(set, options)) {}
BatchLoader::~BatchLoader() = default;
BatchLoader::BatchLoader(BatchLoader&&) noexcept = default;
BatchLoader& BatchLoader::operator=(BatchLoader&&) noexcept = default;

std::int64_t BatchLoader::batches_per_epoch() const {
  return implementation_->batches_per_epoch();
}
void BatchLoader::start_epoch(std::int64_t epoch, std::int64_t start_batch) {
  implementation_->start_epoch(epoch, start_batch);
}
std::optional<Batch> BatchLoader::next() {
  return implementation_->next();
}
std::int64_t BatchLoader::skipped() const {
  return implementation_->skipped();
}

}  // namespace topomask
