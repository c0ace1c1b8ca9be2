#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/random.h"
#include "data/io/image.h"

namespace topomask {
namespace {

// Which input pixels an output pixel averages, along one side.
struct Taps {
  struct Output {
    int first = 0;
    std::vector<float> weight;
  };
  std::vector<Output> outputs;
  int first = 0, last = 0;  // input pixels that any of them needs

  // The filter is a triangle of half-width 1 input pixel, or 1 output pixel where that is wider.
  Taps(int input_size, double begin, double length, int output_size) {
    const double scale = length / output_size, reach = std::max(scale, 1.0);
    first = input_size;
    for (int o = 0; o < output_size; ++o) {
      const double centre = begin + (o + 0.5) * scale;
      Output output;
      output.first = std::max(0, static_cast<int>(std::floor(centre - reach)));
      const int end = std::min(input_size, static_cast<int>(std::ceil(centre + reach)) + 1);
      double sum = 0;
      std::vector<double> weight;
      for (int i = output.first; i < end; ++i) {
        weight.push_back(std::max(0.0, 1 - std::abs(i + 0.5 - centre) / reach));
        sum += weight.back();
      }
      for (const double w : weight) output.weight.push_back(static_cast<float>(w / sum));
      first = std::min(first, output.first);
      last = std::max(last, end);
      outputs.push_back(std::move(output));
    }
  }
};

}  // namespace

void resize_box(const RgbImage& image, const Box& box, int height, int width, std::uint8_t* out) {
  check(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 && height > 0 && width > 0 &&
            box.left + box.width <= image.width + 1e-6 && box.top + box.height <= image.height + 1e-6,
        "resize_box: a box of {} x {} at ({}, {}) is not inside an image of {} x {}", box.width, box.height,
        box.left, box.top, image.width, image.height);
  const Taps across(image.width, box.left, box.width, width), down(image.height, box.top, box.height, height);

  // Rows first: every input row that is needed at the output's width.
  const std::size_t row_size = static_cast<std::size_t>(width) * 3;
  std::vector<float> rows(row_size * static_cast<std::size_t>(down.last - down.first));
  for (int y = down.first; y < down.last; ++y) {
    const std::uint8_t* input = image.pixels.data() + static_cast<std::size_t>(y) * image.width * 3;
    float* row = rows.data() + static_cast<std::size_t>(y - down.first) * row_size;
    for (const Taps::Output& output : across.outputs) {
      float sum[3] = {0, 0, 0};
      const std::uint8_t* pixel = input + static_cast<std::size_t>(output.first) * 3;
      for (const float weight : output.weight) {
        for (int c = 0; c < 3; ++c) sum[c] += weight * pixel[c];
        pixel += 3;
      }
      row = std::copy(sum, sum + 3, row);
    }
  }

  std::vector<float> sum(row_size);
  for (int y = 0; y < height; ++y) {
    const Taps::Output& output = down.outputs[static_cast<std::size_t>(y)];
    std::fill(sum.begin(), sum.end(), 0.0f);
    const float* row = rows.data() + static_cast<std::size_t>(output.first - down.first) * row_size;
    for (const float weight : output.weight) {
      for (std::size_t i = 0; i < row_size; ++i) sum[i] += weight * row[i];
      row += row_size;
    }
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const float value = std::clamp(sum[static_cast<std::size_t>(3 * x + c)], 0.0f, 255.0f);
        out[(static_cast<std::size_t>(c) * height + y) * width + x] = static_cast<std::uint8_t>(value + 0.5f);
      }
    }
  }
}

Box centre_square(ImageExtent extent) {
  const int side = std::min(extent.width, extent.height);
  return {(extent.width - side) / 2.0, (extent.height - side) / 2.0, static_cast<double>(side),
          static_cast<double>(side)};
}

Box random_crop(ImageExtent extent, double min_area, std::uint64_t seed) {
  constexpr std::uint32_t kPurpose = 0x43524F50;  // "CROP"
  constexpr int kAttempts = 10;
  RandomStream random(seed, kPurpose);
  const double area = static_cast<double>(extent.width) * extent.height;
  const double widest_ratio = std::log(4.0 / 3.0);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double target = area * (min_area + (1 - min_area) * random.next_double());
    const double ratio = std::exp(widest_ratio * (2 * random.next_double() - 1));
    const double width = std::round(std::sqrt(target * ratio)),
                 height = std::round(std::sqrt(target / ratio));
    if (width < 1 || height < 1 || width > extent.width || height > extent.height) continue;
    const double left =
        static_cast<double>(random.next_below(static_cast<std::uint64_t>(extent.width - width) + 1));
    const double top =
        static_cast<double>(random.next_below(static_cast<std::uint64_t>(extent.height - height) + 1));
    return {left, top, width, height};
  }
  return centre_square(extent);
}

}  // namespace topomask
