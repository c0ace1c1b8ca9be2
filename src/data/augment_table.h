// Every random choice for one batch, drawn on the CPU as a table with one row per image.
#pragma once

#include <cstdint>
#include <vector>

#include "data/augment_columns.h"
#include "topomask/augment.h"

namespace topomask {

// The fourteen operations of RandAugment (Cubuk et al. 2020).
enum class AugmentOp {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  colour,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize,
};
constexpr int kAugmentOps = 14;

enum class Mixing { none, mixup, cutmix };

struct AugmentTable {
  std::int64_t rows = 0, columns = 0;
  // Which parts of a layer any image needs.
  struct Layer {
    bool warps = false, levels = false, blends = false;
    std::int64_t equalized = 0;  // images
  };
  std::vector<Layer> layers;
  Mixing mixing = Mixing::none;
};

struct ImagePlace {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, step = 0;
};

std::int64_t augment_columns(const AugmentOptions& options);

// Fills `out` ([batch_size, augment_columns]). `places` ([batch_size]) are those of the images in the whole
// batch, null where this is the whole batch.
AugmentTable draw_augment_table(const AugmentOptions& options, const ImagePlace& place,
                                std::int64_t batch_size, std::int64_t height, std::int64_t width, float* out,
                                const std::int64_t* places = nullptr);

// One operation at a magnitude of 0 to 30; `negative` turns the direction of those that have two.
void set_operation(AugmentOp op, double magnitude, bool negative, std::int64_t height, std::int64_t width,
                   float* layer);

}  // namespace topomask
