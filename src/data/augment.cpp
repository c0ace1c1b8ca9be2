#include "topomask/augment.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/tensors.h"
#include "data/augment_table.h"
#include "data/gpu.h"
#include "data/normalise.h"
#include "data/pixel_ops.h"

namespace topomask {
namespace {

void check_options(const AugmentOptions& options) {
  const auto in_range = [](double value, double least, double most, const char* what) {
    check(value >= least && value <= most, "AugmentOptions: {} must be from {} to {}, got {}", what, least,
          most, value);
  };
  in_range(options.min_crop_area, 0.01, 1, "min_crop_area");
  in_range(static_cast<double>(options.pad), 0, 1024, "pad");
  in_range(static_cast<double>(options.rand_augment_ops), 0, 16, "rand_augment_ops");
  in_range(options.rand_augment_magnitude, 0, 30, "rand_augment_magnitude");
  in_range(static_cast<double>(options.cutout), 0, 4096, "cutout");
  in_range(options.mixup, 0, 100, "mixup");
  in_range(options.cutmix, 0, 100, "cutmix");
  in_range(options.mix_probability, 0, 1, "mix_probability");
  in_range(options.label_smoothing, 0, 1, "label_smoothing");
}

// Without the images that were loaded only as partners for mixing.
AugmentedBatch own_images(AugmentedBatch batch, const BatchPlaces& part) {
  if (!part.places.defined() || part.own_end - part.own_begin == batch.images.size(0)) return batch;
  for (at::Tensor* rows : {&batch.images, &batch.targets})
    *rows = rows->narrow(0, part.own_begin, part.own_end - part.own_begin);
  return batch;
}

}  // namespace

Augmenter::Augmenter(const ImageData& data, const AugmentOptions& options, std::uint64_t seed,
                     c10::Device device)
    : options_(options), seed_(seed), num_classes_(data.num_classes()) {
  check_options(options);
  check(data.frames == 1 || options.rand_augment_ops == 0,
        "AugmentOptions: rand_augment_ops must be 0 for clips, got {}: RandAugment is for single images",
        options.rand_augment_ops);
  check(!options.flip || !data.mirror_changes_class,
        "AugmentOptions: flip must be off for '{}': a mirrored clip belongs to another class", data.spec);
  options_.min_crop_area =
      data.train.resident() ? std::min(options.min_crop_area, data.train.min_crop_area) : 1.0;
  const NormalisationConstants constants = normalisation_constants(data.mean, data.stddev, device);
  scale_ = constants.scale;
  shift_ = constants.shift;
  std::vector<double> colour;
  for (const double mean : data.mean) colour.push_back(std::clamp(std::round(255 * mean), 0.0, 255.0));
  fill_ = at::tensor(colour, at::kDouble).to(at::kByte).view({-1, 1, 1}).to(device);
}

at::Tensor Augmenter::normalise(const at::Tensor& images) const {
  return normalise_images(images, {scale_, shift_}, "Augmenter");
}

AugmentedBatch Augmenter::augment(const Batch& batch) const {
  const at::Tensor& input = batch.images;
  const bool clips = input.dim() == 5;
  check((clips || input.dim() == 4) && batch.labels.dim() == 1 && batch.labels.size(0) == input.size(0),
        "Augmenter: expected images [B, C, H, W] and labels [B], got {} and {}", describe(input),
        describe(batch.labels));
  check(input.scalar_type() == at::kByte && batch.labels.scalar_type() == at::kLong &&
            input.size(-3) == scale_.size(0),
        "Augmenter: expected images uint8 [B, {}, H, W] and labels int64, got {} and {}", scale_.size(0),
        describe(input), describe(batch.labels));
  const std::int64_t count = input.size(0), height = input.size(-2), width = input.size(-1);
  const c10::Device device = input.device();

  // One transfer for all random choices of the batch.
  at::Tensor drawn = at::empty({count, augment_columns(options_)},
                               at::TensorOptions().dtype(at::kFloat).pinned_memory(device.is_cuda()));
  const at::Tensor& places = batch.part.places;
  const AugmentTable table = draw_augment_table(
      options_, {seed_, batch.epoch, batch.step}, count, height, width, drawn.data_ptr<float>(),
      places.defined() ? places.const_data_ptr<std::int64_t>() : nullptr);
  drawn = drawn.to(device, device.is_cuda());
  const at::Tensor fill = fill_.to(device);
  if (!clips && augment_runs_on_cuda(input)) {
    return own_images(augment_cuda(batch, options_,
                                   {scale_.to(device), shift_.to(device), fill, num_classes_}, table, drawn),
                      batch.part);
  }

  // The frames of a clip are images with the same choices.
  at::Tensor images = clips ? input.flatten(0, 1) : input;
  const at::Tensor choices = clips ? drawn.repeat_interleave(input.size(1), 0) : drawn;
  if (options_.min_crop_area < 1) images = enlarge_boxes(images, choices.narrow(1, column::kCrop, 4));
  if (options_.pad > 0 || options_.flip)
    images = warp_nearest(images, choices.narrow(1, column::kShift, 6), fill);
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    const std::int64_t at = column::kLayers + static_cast<std::int64_t>(l) * column::kLayerSize;
    images = apply_layer(images, choices.narrow(1, at, column::kLayerSize), table.layers[l], fill);
  }
  images = normalise(images);
  if (clips) images = images.view({count, input.size(1) * input.size(2), height, width});
  if (options_.cutout > 0) {
    images.masked_fill_(inside_box(drawn.narrow(1, column::kCutout, 4), height, width), 0);
  }

  const double spread = options_.label_smoothing / static_cast<double>(num_classes_);
  at::Tensor targets = at::full({count, num_classes_}, spread, images.options());
  targets.scatter_(1, batch.labels.unsqueeze(1), 1 - options_.label_smoothing + spread);

  if (table.mixing != Mixing::none) {
    // The batch is in random order, so the partner is simply the image at the same distance from its end. So
    // it is in a part of a batch, where BatchPart::partners makes the loader bring both.
    const at::Tensor own = drawn.narrow(1, column::kMixOwn, 1);
    const at::Tensor partner = images.flip(0);
    images = table.mixing == Mixing::mixup
                 ? partner.lerp(images, own.view({count, 1, 1, 1}))
                 : at::where(inside_box(drawn.narrow(1, column::kMixBox, 4), height, width), partner, images);
    targets = targets.flip(0).lerp(targets, own);
  }
  return own_images({images.view(input.sizes()), targets}, batch.part);
}

}  // namespace topomask
