// Every random choice for one batch, drawn on the CPU as a table with one row an image.
#pragma once

#include <cstdint>
#include <vector>

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

// Columns of a table. An operation that an image does not undergo has the parameters that change nothing.
namespace column {
constexpr std::int64_t kShift =
    0;                             // 6: output pixel to input pixel, (x, y) -> (a x + b y + c, d x + e y + f)
constexpr std::int64_t kCrop = 6;  // 4: left, top, width, height
constexpr std::int64_t kCutout = 10;              // 4: first and one past the last x, the same of y
constexpr std::int64_t kMixBox = 14;              // 4: as of cutout, what comes from the partner
constexpr std::int64_t kMixOwn = 18;              // 1: how much of the target stays the image's own
constexpr std::int64_t kLayers = 19;              // kLayerSize for every operation of RandAugment:
constexpr std::int64_t kWarp = 0;                 // 6: as of kShift
constexpr std::int64_t kGain = 6, kGreyGain = 7;  // level * gain + mean grey * grey gain
constexpr std::int64_t kKeptBits = 8;             // of a byte
constexpr std::int64_t kSolarizeFrom = 9;         // levels from here on are inverted
constexpr std::int64_t kStretch = 10;             // 1: auto contrast
constexpr std::int64_t kColour = 11, kSharpness = 12;
constexpr std::int64_t kEqualized = 13;  // the numbers of the images to be equalised, in the first rows
constexpr std::int64_t kLayerSize = 14;
}  // namespace column

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

// Fills `out` ([batch_size, augment_columns]).
AugmentTable draw_augment_table(const AugmentOptions& options, const ImagePlace& place,
                                std::int64_t batch_size, std::int64_t height, std::int64_t width, float* out);

// One operation at a magnitude of 0 to 30; `negative` turns the direction of those that have two.
void set_operation(AugmentOp op, double magnitude, bool negative, std::int64_t height, std::int64_t width,
                   float* layer);

}  // namespace topomask
