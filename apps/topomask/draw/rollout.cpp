#include "draw/rollout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "data/io/png_writer.h"

namespace topomask::cli {
namespace {

constexpr int kSmallestFrame = 128;  // pixels of an enlarged frame, at least
constexpr int kFrameGap = 4;         // white pixels between pictures of the animation
constexpr int kRestingSteps = 4;     // that the last one is shown for

void check_frames(const RolloutFrames& frames) {
  const std::size_t bytes =
      static_cast<std::size_t>(frames.steps) * static_cast<std::size_t>(frames.cameras) *
      static_cast<std::size_t>(frames.height) * static_cast<std::size_t>(frames.width) * 3;
  check(frames.steps >= 1 && frames.cameras >= 1 && frames.height >= 1 && frames.width >= 1 &&
            frames.truth.size() == bytes && frames.predicted.size() == bytes,
        "rollout: expected {} bytes of both kinds for {} steps of {} cameras with {} x {} pixels, got {} and "
        "{}",
        bytes, frames.steps, frames.cameras, frames.width, frames.height, frames.truth.size(),
        frames.predicted.size());
}

// White where two frames are equal. One grey value for a pixel: the mean over its channels.
std::vector<std::uint8_t> difference_of(const std::uint8_t* a, const std::uint8_t* b, std::size_t pixels) {
  std::vector<std::uint8_t> result(3 * pixels);
  for (std::size_t i = 0; i < pixels; ++i) {
    int sum = 0;
    for (std::size_t c = 0; c < 3; ++c) sum += std::abs(a[3 * i + c] - b[3 * i + c]);
    const double share = std::min(1.0, sum / (3 * 255 * kLargestDifference));
    std::fill_n(result.begin() + static_cast<std::ptrdiff_t>(3 * i), 3,
                static_cast<std::uint8_t>(std::lround(255 * (1 - share))));
  }
  return result;
}

SheetPicture picture_of(const std::uint8_t* pixels, const RolloutFrames& frames, std::string label) {
  SheetPicture picture{std::move(label), frames.height, frames.width, {}};
  for (int i = 0; i < frames.height * frames.width; ++i, pixels += 3)
    picture.pixels.push_back({pixels[0], pixels[1], pixels[2]});
  return picture;
}

std::vector<int> shown_steps(int steps, int most) {
  std::vector<int> shown;
  const int count = std::min(steps, most);
  for (int i = 0; i < count; ++i) shown.push_back(count == 1 ? 0 : i * (steps - 1) / (count - 1));
  return shown;
}

// Draws a frame with every pixel as scale x scale into a larger one.
void paste(const std::uint8_t* from, const RolloutFrames& frames, int scale, std::uint8_t* to,
           int row_pixels) {
  for (int row = 0; row < frames.height * scale; ++row) {
    const std::uint8_t* line = from + static_cast<std::ptrdiff_t>(row / scale) * frames.width * 3;
    std::uint8_t* out = to + static_cast<std::ptrdiff_t>(row) * row_pixels * 3;
    for (int column = 0; column < frames.width * scale; ++column)
      std::copy_n(line + column / scale * 3, 3, out + column * 3);
  }
}

}  // namespace

std::vector<std::uint8_t> rollout_strip(const RolloutFrames& frames, int camera, RolloutPart part) {
  check_frames(frames);
  check(camera >= 0 && camera < frames.cameras, "rollout: camera must be 0 to {}, got {}", frames.cameras - 1,
        camera);
  const auto pixels = static_cast<std::size_t>(frames.height) * static_cast<std::size_t>(frames.width);
  std::vector<std::uint8_t> strip(pixels * static_cast<std::size_t>(frames.steps) * 3);
  for (int step = 0; step < frames.steps; ++step) {
    const std::uint8_t *seen = frames.true_frame(step, camera), *told = frames.predicted_frame(step, camera);
    const std::vector<std::uint8_t> difference =
        part == RolloutPart::difference ? difference_of(seen, told, pixels) : std::vector<std::uint8_t>();
    paste(part == RolloutPart::truth       ? seen
          : part == RolloutPart::predicted ? told
                                           : difference.data(),
          frames, 1, strip.data() + static_cast<std::ptrdiff_t>(step) * frames.width * 3,
          frames.steps * frames.width);
  }
  return strip;
}

ContactSheet rollout_sheet(const RolloutFrames& frames, const RolloutSheetOptions& options) {
  check_frames(frames);
  check(options.most_columns >= 1, "rollout: expected at least 1 column, got {}", options.most_columns);
  ContactSheet sheet{.title = options.title, .pictures = {}, .caption = {}, .tile = options.tile};
  const std::vector<int> steps = shown_steps(frames.steps, options.most_columns);
  const auto pixels = static_cast<std::size_t>(frames.height) * static_cast<std::size_t>(frames.width);
  for (const int camera : options.cameras) {
    check(camera >= 0 && camera < frames.cameras, "rollout: camera must be 0 to {}, got {}",
          frames.cameras - 1, camera);
    std::vector<SheetPicture> truth, predicted, difference;
    for (const int step : steps) {
      const std::uint8_t *seen = frames.true_frame(step, camera),
                         *told = frames.predicted_frame(step, camera);
      truth.push_back(picture_of(seen, frames, {}));
      predicted.push_back(picture_of(told, frames, {}));
      difference.push_back(
          picture_of(difference_of(seen, told, pixels).data(), frames,
                     fmt::format("step {}, {:.1f} s", step + 1, (step + 1) * options.step_seconds)));
    }
    const std::string which = options.cameras.size() > 1 ? fmt::format("{}: ", camera) : "";
    for (auto& [row, name] : {std::pair{&truth, "truth"}, std::pair{&predicted, "predicted"},
                              std::pair{&difference, "difference"}}) {
      sheet.pictures.push_back(std::move(*row));
      sheet.row_titles.push_back(which + name);
    }
  }
  sheet.caption = fmt::format(
      "Camera{} {}: the truth, the prediction, and by how much they differ (white: equal; black: by {:.0f} % "
      "of "
      "the range or more).",
      options.cameras.size() > 1 ? "s" : "", fmt::join(options.cameras, " and "), 100 * kLargestDifference);
  return sheet;
}

std::string rollout_animation(const RolloutFrames& frames, double seconds) {
  check_frames(frames);
  const int scale = std::max(1, (kSmallestFrame + frames.height - 1) / frames.height);
  const int column = frames.width * scale + kFrameGap, row = frames.height * scale + kFrameGap;
  const int width = 3 * column - kFrameGap, height = frames.cameras * row - kFrameGap;
  const auto pixels = static_cast<std::size_t>(frames.height) * static_cast<std::size_t>(frames.width);
  std::vector<std::vector<std::uint8_t>> pictures;
  for (int step = 0; step < frames.steps; ++step) {
    std::vector<std::uint8_t> picture(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3,
                                      255);
    for (int camera = 0; camera < frames.cameras; ++camera) {
      const std::uint8_t *seen = frames.true_frame(step, camera),
                         *told = frames.predicted_frame(step, camera);
      const std::vector<std::uint8_t> difference = difference_of(seen, told, pixels);
      std::uint8_t* line = picture.data() + static_cast<std::ptrdiff_t>(camera) * row * width * 3;
      for (const std::uint8_t* frame : {seen, told, difference.data()}) {
        paste(frame, frames, scale, line, width);
        line += static_cast<std::ptrdiff_t>(column) * 3;
      }
    }
    pictures.push_back(std::move(picture));
  }
  for (int i = 1; i < kRestingSteps; ++i)
    pictures.push_back(pictures[static_cast<std::size_t>(frames.steps) - 1]);
  return encode_png_animation(pictures, width, height, seconds);
}

}  // namespace topomask::cli
