#include "data/augment_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/random.h"
#include "data/cpu/drawing.h"
#include "data/io/image.h"

namespace topomask {
namespace {

// Each kind of change draws from its own stream: switching one on leaves the others unchanged.
enum Purpose : std::uint32_t { kForCrop = 1, kForShift, kForOperations, kForCutout, kForMix };

constexpr double kLargestMagnitude = 30;

// A matrix about the centre of the picture, as one about pixel (0, 0).
void set_warp(double a, double b, double d, double e, double move_x, double move_y, std::int64_t height,
              std::int64_t width, float* out) {
  const double cx = (static_cast<double>(width) - 1) / 2, cy = (static_cast<double>(height) - 1) / 2;
  const std::array<double, 6> warp = {a, b, cx - a * cx - b * cy + move_x,
                                      d, e, cy - d * cx - e * cy + move_y};
  std::transform(warp.begin(), warp.end(), out, [](double x) { return static_cast<float>(x); });
}

void set_box(double first_x, double last_x, double first_y, double last_y, float* out) {
  const std::array<double, 4> box = {first_x, last_x, first_y, last_y};
  std::transform(box.begin(), box.end(), out, [](double x) { return static_cast<float>(x); });
}

// Marsaglia and Tsang 2000; below 1 through Gamma(a) = Gamma(a + 1) U^(1/a).
double draw_gamma(double shape, RandomStream& random) {
  if (shape < 1) {
    const double power = std::pow(1 - random.next_double(), 1 / shape);
    return draw_gamma(shape + 1, random) * power;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double normal = normal_pair(random).first, cube = 1 + c * normal;
    if (cube <= 0) continue;
    const double v = cube * cube * cube, u = 1 - random.next_double();
    if (std::log(u) < 0.5 * normal * normal + d - d * v + d * std::log(v)) return d * v;
  }
}

double draw_beta(double alpha, RandomStream& random) {
  const double a = draw_gamma(alpha, random), b = draw_gamma(alpha, random);
  return a + b > 0 ? a / (a + b) : 0.5;  // both can underflow where alpha is tiny
}

Mixing draw_mixing(const AugmentOptions& options, std::uint64_t batch_seed) {
  RandomStream random(batch_seed, kForMix);
  const bool mixed = random.next_double() < options.mix_probability, first = random.next_double() < 0.5;
  if (!mixed || (options.mixup <= 0 && options.cutmix <= 0)) return Mixing::none;
  if (options.cutmix <= 0) return Mixing::mixup;
  if (options.mixup <= 0) return Mixing::cutmix;
  return first ? Mixing::mixup : Mixing::cutmix;
}

void draw_mix(const AugmentOptions& options, Mixing mixing, std::uint64_t seed, std::int64_t height,
              std::int64_t width, float* row) {
  row[column::kMixOwn] = 1;
  if (mixing == Mixing::none) return;
  RandomStream random(seed, kForMix);
  const double own = draw_beta(mixing == Mixing::mixup ? options.mixup : options.cutmix, random);
  row[column::kMixOwn] = static_cast<float>(own);
  if (mixing == Mixing::mixup) return;
  // A box with the partner's share of the area around a random centre; what sticks out is cut off, so the
  // share is taken from what is left.
  const double side = std::sqrt(1 - own);
  const auto range = [&](std::int64_t extent, double& first, double& last) {
    const double length = std::round(side * static_cast<double>(extent));
    const double begin =
        static_cast<double>(random.next_below(static_cast<std::uint64_t>(extent))) - std::floor(length / 2);
    first = std::max(0.0, begin), last = std::min(static_cast<double>(extent), begin + length);
  };
  double x0, x1, y0, y1;
  range(width, x0, x1), range(height, y0, y1);
  set_box(x0, x1, y0, y1, row + column::kMixBox);
  row[column::kMixOwn] = static_cast<float>(
      1 - (x1 - x0) * (y1 - y0) / (static_cast<double>(width) * static_cast<double>(height)));
}

void draw_shift(const AugmentOptions& options, std::uint64_t seed, std::int64_t width, float* row) {
  RandomStream random(seed, kForShift);
  const auto range = static_cast<std::uint64_t>(2 * options.pad + 1);
  const double move_x = static_cast<double>(random.next_below(range)) - static_cast<double>(options.pad);
  const double move_y = static_cast<double>(random.next_below(range)) - static_cast<double>(options.pad);
  const bool flip = (random.next_u32() & 1) != 0 && options.flip;
  const std::array<double, 6> shift = {
      flip ? -1.0 : 1.0, 0, move_x + (flip ? static_cast<double>(width - 1) : 0.0), 0, 1, move_y};
  std::transform(shift.begin(), shift.end(), row + column::kShift,
                 [](double x) { return static_cast<float>(x); });
}

void draw_crop(const AugmentOptions& options, std::uint64_t seed, std::int64_t height, std::int64_t width,
               float* row) {
  const Box box = random_crop({static_cast<int>(width), static_cast<int>(height)}, options.min_crop_area,
                              derive_seed(seed, kForCrop));
  set_box(box.left, box.top, box.width, box.height, row + column::kCrop);
}

void draw_cutout(const AugmentOptions& options, std::uint64_t seed, std::int64_t height, std::int64_t width,
                 float* row) {
  RandomStream random(seed, kForCutout);
  const auto begin_x = static_cast<double>(random.next_below(static_cast<std::uint64_t>(width)));
  const auto begin_y = static_cast<double>(random.next_below(static_cast<std::uint64_t>(height)));
  const auto side = static_cast<double>(options.cutout), before = std::floor(side / 2);
  set_box(begin_x - before, begin_x - before + side, begin_y - before, begin_y - before + side,
          row + column::kCutout);
}

}  // namespace

void set_operation(AugmentOp op, double magnitude, bool negative, std::int64_t height, std::int64_t width,
                   float* layer) {
  const double strength = magnitude / kLargestMagnitude, sign = negative ? -1 : 1;
  set_warp(1, 0, 0, 1, 0, 0, height, width, layer + column::kWarp);
  layer[column::kGain] = layer[column::kColour] = layer[column::kSharpness] = 1;
  layer[column::kGreyGain] = layer[column::kStretch] = layer[column::kEqualize] = 0;
  layer[column::kKeptBits] = 255;
  layer[column::kSolarizeFrom] = 256;
  // The ranges are those of the paper as torchvision has them.
  const double shear = 0.3 * strength * sign, part = 150.0 / 331 * strength * sign;
  const double factor = 1 + 0.9 * strength * sign;
  switch (op) {
    case AugmentOp::identity:
      break;
    case AugmentOp::shear_x:
      set_warp(1, shear, 0, 1, 0, 0, height, width, layer + column::kWarp);
      break;
    case AugmentOp::shear_y:
      set_warp(1, 0, shear, 1, 0, 0, height, width, layer + column::kWarp);
      break;
    case AugmentOp::translate_x:
      set_warp(1, 0, 0, 1, std::round(part * static_cast<double>(width)), 0, height, width,
               layer + column::kWarp);
      break;
    case AugmentOp::translate_y:
      set_warp(1, 0, 0, 1, 0, std::round(part * static_cast<double>(height)), height, width,
               layer + column::kWarp);
      break;
    case AugmentOp::rotate: {
      const double angle = std::numbers::pi / 6 * strength * sign, c = std::cos(angle), s = std::sin(angle);
      set_warp(c, s, -s, c, 0, 0, height, width, layer + column::kWarp);
      break;
    }
    case AugmentOp::brightness:
      layer[column::kGain] = static_cast<float>(factor);
      break;
    case AugmentOp::colour:
      layer[column::kColour] = static_cast<float>(factor);
      break;
    case AugmentOp::contrast:
      layer[column::kGain] = static_cast<float>(factor);
      layer[column::kGreyGain] = static_cast<float>(1 - factor);
      break;
    case AugmentOp::sharpness:
      layer[column::kSharpness] = static_cast<float>(factor);
      break;
    case AugmentOp::posterize: {
      const int dropped = static_cast<int>(std::lround(4 * strength));
      layer[column::kKeptBits] = static_cast<float>(255 & (255 << dropped));
      break;
    }
    case AugmentOp::solarize:
      layer[column::kSolarizeFrom] = static_cast<float>(255 * (1 - strength));
      break;
    case AugmentOp::auto_contrast:
      layer[column::kStretch] = 1;
      break;
    case AugmentOp::equalize:
      layer[column::kEqualize] = 1;
      break;
  }
}

std::int64_t augment_columns(const AugmentOptions& options) {
  return column::kLayers + options.rand_augment_ops * column::kLayerSize;
}

AugmentTable draw_augment_table(const AugmentOptions& options, const ImagePlace& place,
                                std::int64_t batch_size, std::int64_t height, std::int64_t width, float* out,
                                const std::int64_t* places) {
  const std::uint64_t epoch_seed = derive_seed(place.seed, static_cast<std::uint64_t>(place.epoch));
  const std::uint64_t batch_seed = derive_seed(epoch_seed, static_cast<std::uint64_t>(place.step));
  AugmentTable table;
  table.rows = batch_size, table.columns = augment_columns(options);
  table.layers.resize(static_cast<std::size_t>(options.rand_augment_ops));
  table.mixing = draw_mixing(options, batch_seed);
  std::fill(out, out + table.rows * table.columns, 0.0f);
  for (std::int64_t i = 0; i < batch_size; ++i) {
    const std::uint64_t seed =
        derive_seed(batch_seed, static_cast<std::uint64_t>(places == nullptr ? i : places[i]));
    float* row = out + i * table.columns;
    if (options.min_crop_area < 1) draw_crop(options, seed, height, width, row);
    draw_shift(options, seed, width, row);
    draw_cutout(options, seed, height, width, row);
    draw_mix(options, table.mixing, seed, height, width, row);
    RandomStream random(seed, kForOperations);
    for (std::size_t l = 0; l < table.layers.size(); ++l) {
      AugmentTable::Layer& layer = table.layers[l];
      const std::int64_t at = column::kLayers + static_cast<std::int64_t>(l) * column::kLayerSize;
      const auto op = static_cast<AugmentOp>(random.next_below(kAugmentOps));
      set_operation(op, options.rand_augment_magnitude, (random.next_u32() & 1) != 0, height, width,
                    row + at);
      layer.warps |= op >= AugmentOp::shear_x && op <= AugmentOp::rotate;
      layer.blends |= op == AugmentOp::colour || op == AugmentOp::sharpness;
      layer.levels |= op == AugmentOp::brightness || op == AugmentOp::contrast || op >= AugmentOp::posterize;
      if (op == AugmentOp::equalize) {
        out[layer.equalized++ * table.columns + at + column::kEqualized] = static_cast<float>(i);
      }
    }
  }
  return table;
}

}  // namespace topomask
