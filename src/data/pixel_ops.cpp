#include "data/pixel_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/grid_sampler.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

namespace topomask {
namespace {

constexpr std::int64_t kLevels = 256;

at::Tensor to_bytes(const at::Tensor& levels) {
  return levels.round().clamp(0, kLevels - 1).to(at::kByte);
}

// [B, 1, 1] or [B, 1, 1, 1] for broadcasting against planes.
at::Tensor broad(const at::Tensor& parameter, std::int64_t index, std::int64_t dims) {
  at::Tensor value = parameter.select(1, index);
  for (; dims > 0; --dims) value = value.unsqueeze(-1);
  return value;
}

at::Tensor counting(std::int64_t size, const at::Tensor& like) {
  return at::arange(size, like.options().dtype(at::kFloat));
}

// Luma of ITU-R 601: [B, 1, H, W] float32.
at::Tensor grey_of(const at::Tensor& images) {
  if (images.size(1) != 3) return images.mean(1, true);
  return (images.select(1, 0) * 0.299 + images.select(1, 1) * 0.587 + images.select(1, 2) * 0.114)
      .unsqueeze(1);
}

// What histogram equalisation maps every level to, [E, C, 256]: levels rise with the number of pixels below
// them.
at::Tensor equalized_levels(const at::Tensor& images) {  // [E, C, H, W] uint8
  const std::int64_t planes = images.size(0) * images.size(1), pixels = images.size(2) * images.size(3);
  const at::Tensor level = images.reshape({planes, pixels}).to(at::kLong);
  const at::Tensor histogram =
      at::zeros({planes, kLevels}, level.options())
          .scatter_add_(1, level, at::ones({1, 1}, level.options()).expand({planes, pixels}));
  const at::Tensor below = histogram.cumsum(1) - histogram;
  // The brightest level that occurs does not count, as in Pillow.
  const at::Tensor brightest = histogram.gather(1, level.amax(1, true));
  const at::Tensor step = (pixels - brightest).div(kLevels - 1, "floor");
  const at::Tensor mapped =
      (below + step.div(2, "floor")).div(step.clamp_min(1), "floor").clamp_max(kLevels - 1);
  const at::Tensor same = at::arange(kLevels, level.options()).expand({planes, kLevels});
  return at::where(step > 0, mapped, same).reshape({images.size(0), images.size(1), kLevels});
}

// Everything that maps levels to levels, as one table per image and channel.
at::Tensor map_levels(const at::Tensor& images, const at::Tensor& parameter,
                      const AugmentTable::Layer& layer) {
  const std::int64_t batch = images.size(0), channels = images.size(1),
                     pixels = images.size(2) * images.size(3);
  const at::Tensor plane = images.reshape({batch, channels, pixels});
  const at::Tensor level = counting(kLevels, images);
  const at::Tensor grey = grey_of(images.to(at::kFloat)).mean({1, 2, 3}).view({batch, 1, 1});

  at::Tensor table =
      level * broad(parameter, column::kGain, 2) + grey * broad(parameter, column::kGreyGain, 2);
  table = table.round().clamp(0, kLevels - 1);
  // Bits are dropped by a bitwise "and" on whole numbers.
  table = table.to(at::kInt).bitwise_and(broad(parameter, column::kKeptBits, 2).to(at::kInt)).to(at::kFloat);
  table = at::where(table >= broad(parameter, column::kSolarizeFrom, 2), kLevels - 1 - table, table);

  const at::Tensor darkest = plane.amin(2, true).to(at::kFloat),
                   brightest = plane.amax(2, true).to(at::kFloat);
  const at::Tensor range = brightest - darkest;
  const at::Tensor stretched =
      ((level - darkest) * ((kLevels - 1) / range.clamp_min(1))).round().clamp(0, kLevels - 1);
  const at::Tensor stretch = (broad(parameter, column::kStretch, 2) > 0).logical_and(range > 0);
  table = at::where(stretch, stretched, table);

  if (layer.equalized > 0) {
    const at::Tensor which =
        parameter.select(1, column::kEqualized).narrow(0, 0, layer.equalized).to(at::kLong);
    table = table.index_copy(0, which, equalized_levels(images.index_select(0, which)).to(at::kFloat));
  }
  return table.to(at::kByte).gather(2, plane.to(at::kLong)).view(images.sizes());
}

// Saturation and sharpness: away from, or towards, the grey or the smoothed image.
at::Tensor blend(const at::Tensor& images, const at::Tensor& parameter) {
  const at::Tensor level = images.to(at::kFloat);
  at::Tensor result = level;
  if (images.size(1) == 3) {
    result = result + (level - grey_of(level)) * (broad(parameter, column::kColour, 3) - 1);
  }
  const std::int64_t height = images.size(2), width = images.size(3);
  if (height >= 3 && width >= 3) {
    // The kernel 1 1 1, 1 5 1, 1 1 1 over 13; pixels at the border are left as they are.
    const at::Tensor inner = level.narrow(2, 1, height - 2).narrow(3, 1, width - 2);
    const at::Tensor smooth = (at::avg_pool2d(level, 3, 1) * 9 + inner * 4) / 13;
    result = result.is_same(level) ? level.clone() : result;
    result.narrow(2, 1, height - 2)
        .narrow(3, 1, width - 2)
        .add_((inner - smooth) * (broad(parameter, column::kSharpness, 3) - 1));
  }
  return to_bytes(result);
}

}  // namespace

at::Tensor warp_nearest(const at::Tensor& images, const at::Tensor& warp, const at::Tensor& fill) {
  const std::int64_t batch = images.size(0), channels = images.size(1), height = images.size(2),
                     width = images.size(3);
  const at::Tensor x = counting(width, images), y = counting(height, images).unsqueeze(1);
  const auto source = [&](std::int64_t first) {
    const at::Tensor exact =
        x * broad(warp, first, 2) + (y * broad(warp, first + 1, 2) + broad(warp, first + 2, 2));
    return (exact + 0.5).floor().to(at::kLong);
  };
  const at::Tensor source_x = source(0), source_y = source(3);  // [B, H, W]
  const at::Tensor inside =
      (source_x >= 0).logical_and(source_x < width).logical_and(source_y >= 0).logical_and(source_y < height);
  const at::Tensor index = (source_y * width + source_x).clamp(0, height * width - 1);
  const at::Tensor moved =
      images.reshape({batch, channels, height * width})
          .gather(2, index.view({batch, 1, height * width}).expand({batch, channels, height * width}))
          .view(images.sizes());
  return at::where(inside.unsqueeze(1), moved, fill);
}

at::Tensor enlarge_boxes(const at::Tensor& images, const at::Tensor& box) {
  const std::int64_t height = images.size(2), width = images.size(3);
  // grid_sampler counts from -1 at the left edge of the first pixel to 1 at the right edge of the last.
  const auto coordinate = [&](std::int64_t begin, std::int64_t extent, std::int64_t size) {
    const at::Tensor centre = (counting(size, images) + 0.5) / static_cast<double>(size);  // of the box
    return (broad(box, begin, 1) + centre * broad(box, extent, 1)) * (2.0 / static_cast<double>(size)) - 1;
  };
  const at::Tensor x = coordinate(0, 2, width).unsqueeze(1).expand({images.size(0), height, width});
  const at::Tensor y = coordinate(1, 3, height).unsqueeze(2).expand({images.size(0), height, width});
  constexpr std::int64_t kBilinear = 0, kBorder = 1;
  return to_bytes(at::grid_sampler(images.to(at::kFloat), at::stack({x, y}, 3), kBilinear, kBorder, false));
}

at::Tensor inside_box(const at::Tensor& box, std::int64_t height, std::int64_t width) {
  const at::Tensor x = counting(width, box), y = counting(height, box).unsqueeze(1);
  const at::Tensor across = (x >= broad(box, 0, 2)).logical_and(x < broad(box, 1, 2));
  const at::Tensor down = (y >= broad(box, 2, 2)).logical_and(y < broad(box, 3, 2));
  return across.logical_and(down).unsqueeze(1);
}

at::Tensor apply_layer(at::Tensor images, const at::Tensor& parameter, const AugmentTable::Layer& layer,
                       const at::Tensor& fill) {
  if (layer.warps) images = warp_nearest(images, parameter.narrow(1, column::kWarp, 6), fill);
  if (layer.levels) images = map_levels(images, parameter, layer);
  if (layer.blends) images = blend(images, parameter);
  return images;
}

}  // namespace topomask
