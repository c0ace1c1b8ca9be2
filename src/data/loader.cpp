#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

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

BatchPlaces BatchPart::places(std::int64_t whole) const {
  const std::int64_t begin = whole * part / parts, end = whole * (part + 1) / parts;
  BatchPlaces result;
  result.whole = whole;
  if (!partners) {
    result.places = at::arange(begin, end);
    result.own_end = end - begin;
    return result;
  }
  // The partner of i is whole - 1 - i. With both, the i-th from the front still meets the i-th from the end.
  std::vector<std::int64_t> taken;
  for (std::int64_t i = 0; i < whole; ++i) {
    const std::int64_t partner = whole - 1 - i;
    if ((i >= begin && i < end) || (partner >= begin && partner < end)) taken.push_back(i);
  }
  result.places = at::tensor(taken, at::kLong);
  result.own_begin = std::lower_bound(taken.begin(), taken.end(), begin) - taken.begin();
  result.own_end = result.own_begin + (end - begin);
  return result;
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
    const BatchPart& part = options.part;
    check(part.parts >= 1 && part.part >= 0 && part.part < part.parts,
          "BatchLoader: expected part 0 to {} of {}, got {}", part.parts - 1, part.parts, part.part);
    check(!training() || batch_size_ >= part.parts,
          "training: a batch of {} cannot be shared by {} ranks; make the batch larger", batch_size_,
          part.parts);
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
    own_batch_ = batch_size_;
    order_ = training() ? epoch_order(set_.size(), options_.seed, epoch) : at::arange(set_.size(), at::kLong);
    if (training()) order_ = order_.narrow(0, 0, batches_per_epoch() * batch_size_);
    if (options_.part.parts > 1) take_part();
    if (set_.resident()) device_order_ = order_.to(options_.device);
  }

  std::optional<Batch> next() {
    while (step_ * own_batch_ < order_.size(0)) {
      Batch batch = set_.resident() ? gather() : decode();
      batch.epoch = epoch_;
      batch.step = training() ? step_ : step_ * options_.part.parts + options_.part.part;
      ++step_;
      if (batch.labels.size(0) > 0) return batch;  // evaluation passes over a batch without a readable image
    }
    return std::nullopt;
  }

  std::int64_t skipped() const { return skipped_; }

 private:
  // To skip unreadable images, all must be read: only then are the places of the others known.
  bool reads_whole_batches() const { return options_.skip_bad && !set_.resident(); }

  // Reduces the order to what this part takes of it.
  void take_part() {
    const BatchPart& part = options_.part;
    if (!training()) {
      std::vector<at::Tensor> batches;
      for (std::int64_t b = part.part; b < batches_per_epoch(); b += part.parts)
        batches.push_back(order_.slice(0, b * batch_size_, (b + 1) * batch_size_));
      order_ = batches.empty() ? order_.narrow(0, 0, 0) : at::cat(batches);
      return;
    }
    if (reads_whole_batches()) return;
    part_ = part.places(batch_size_);
    own_batch_ = part_.places.size(0);
    const at::Tensor first = at::arange(batches_per_epoch()).mul(batch_size_).unsqueeze(1);
    crop_places_ = (first + part_.places).flatten();
    order_ = order_.index_select(0, crop_places_);
  }

  Batch gather() const {
    const std::int64_t first = step_ * own_batch_, count = std::min(own_batch_, order_.size(0) - first);
    const at::Tensor which = device_order_.narrow(0, first, count);
    return {.images = images_.index_select(0, which),
            .labels = labels_.index_select(0, which),
            .indices = order_.narrow(0, first, count),
            .part = part_};
  }

  Batch decode() {
    if (!decoder_) start_decoder();
    DecodedBatch decoded = next_decoded();
    skipped_ += decoded.bad;
    BatchPlaces part = part_;
    if (training() && options_.part.parts > 1 && reads_whole_batches()) {
      part = options_.part.places(decoded.indices.size(0));
      decoded.images = decoded.images.index_select(0, part.places);
      decoded.indices = decoded.indices.index_select(0, part.places);
    }
    const bool asynchronous = options_.device.is_cuda();
    at::Tensor labels = set_.labels.index_select(0, decoded.indices);
    if (asynchronous) labels = labels.pin_memory();
    return {.images = decoded.images.to(options_.device, asynchronous),
            .labels = labels.to(options_.device, asynchronous),
            .indices = decoded.indices,
            .part = part};
  }

  // A loss needs an image, on every rank.
  void check_readable(const DecodedBatch& decoded) const {
    if (!training() || decoded.bad == 0) return;
    const std::int64_t readable = decoded.indices.size(0), first = step_ * own_batch_;
    check(readable >= options_.part.parts,
          "training: {} of {} files of a batch can be read, expected at least {}; the first file is '{}'",
          readable, readable + decoded.bad,
          options_.part.parts == 1 ? "1" : fmt::format("one for each of {} ranks", options_.part.parts),
          set_.files[static_cast<std::size_t>(order_.const_data_ptr<std::int64_t>()[first])]);
  }

  // After an error, the next call returns the same batch.
  DecodedBatch next_decoded() {
    try {
      DecodedBatch decoded = decoder_->next().value();
      check_readable(decoded);
      return decoded;
    } catch (...) {
      decoder_.reset();
      throw;
    }
  }

  // Only when the first batch is asked for: a loader that is about to be moved elsewhere in the epoch decodes
  // nothing in vain.
  void start_decoder() {
    DecodeOptions decode;
    decode.batch_size = own_batch_;
    decode.crop_places = crop_places_;
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
  std::int64_t own_batch_ = 0;       // images that are handed out of a batch
  BatchPlaces part_;                 // which of a batch
  at::Tensor images_;                // on the device, where the set is resident
  at::Tensor labels_;                // on the device
  at::Tensor order_, device_order_;  // of this epoch, as far as it is handed out
  at::Tensor crop_places_;           // where these stand in the whole order; undefined: it is whole
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
