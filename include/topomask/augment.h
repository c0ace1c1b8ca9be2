// Augmentation of batches of training images, on the device that holds them.
//
// The order is: random resized crop, pad-crop and flip, RandAugment (all on bytes), normalisation, cutout,
// mixup or cutmix. Every random choice is a function of (seed, epoch, step, index in the batch). A small
// table of choices is drawn on the CPU and copied to the device, which processes the pixels as one batch.
// Uncovered pixels get the mean colour of the set, which is 0 after normalisation. All frames of a clip are
// treated alike; RandAugment is for single images.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "topomask/data.h"

namespace topomask {

struct AugmentOptions {
  double min_crop_area = 1;           // random resized crop of at least this part of the image; 1: none. For
                                      // streamed sets the loader has cropped already
  std::int64_t pad = 0;               // pad-crop: shift by up to `pad` pixels each way
  bool flip = false;                  // horizontally, with probability 1/2
  std::int64_t rand_augment_ops = 0;  // operations per image (N); 0: none
  double rand_augment_magnitude = 9;  // their strength (M), 0 to 30
  std::int64_t cutout = 0;            // side of a square that is blanked; 0: none
  double mixup = 0;                   // alpha of Beta(alpha, alpha); 0: none
  double cutmix = 0;                  // alpha of Beta(alpha, alpha); 0: none. With mixup, each batch takes
                                      // one of the two
  double mix_probability = 1;         // of a batch to be mixed at all
  double label_smoothing = 0;         // part of the target that is spread over all classes
};

struct AugmentedBatch {
  at::Tensor images;   // [B, C, H, W] or [B, T, C, H, W] float32, normalised
  at::Tensor targets;  // [B, num_classes] float32, rows sum to 1
};

class Augmenter {
 public:
  // Takes mean, deviation, number of classes and, where the set is in memory, the crop of its description
  // from `data`. `device` is where its few constants are kept: that of the batches.
  Augmenter(const ImageData& data, const AugmentOptions& options, std::uint64_t seed,
            c10::Device device = c10::Device(c10::kCPU));

  // For training: everything above. Of a part of a batch its own images, as they are in the whole batch.
  AugmentedBatch augment(const Batch& batch) const;

  // For evaluation: [B, C, H, W] or [B, T, C, H, W] uint8 to (x / 255 - mean) / stddev, float32.
  at::Tensor normalise(const at::Tensor& images) const;

  const AugmentOptions& options() const { return options_; }

 private:
  AugmentOptions options_;
  std::uint64_t seed_;
  std::int64_t num_classes_;
  at::Tensor scale_, shift_;  // [C, 1, 1] float32: normalised = byte * scale - shift
  at::Tensor fill_;           // [C, 1, 1] uint8: the mean colour
};

}  // namespace topomask
