// A predicted rollout beside what happened: a sheet to look at and an animation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draw/contact_sheet.h"

namespace topomask::cli {

// T predicted frames of C cameras; rollout_tensors.h makes it from tensors.
struct RolloutFrames {
  int steps = 0, cameras = 0, height = 0, width = 0;
  std::vector<std::uint8_t> truth, predicted;  // [T, C, H, W, 3]

  const std::uint8_t* true_frame(int step, int camera) const { return truth.data() + offset(step, camera); }
  const std::uint8_t* predicted_frame(int step, int camera) const {
    return predicted.data() + offset(step, camera);
  }

  std::size_t offset(int step, int camera) const {
    return static_cast<std::size_t>(step * cameras + camera) * static_cast<std::size_t>(height * width) * 3;
  }
};

// Where a channel differs by this share of its range or more, a picture of differences is black.
inline constexpr double kLargestDifference = .5;

enum class RolloutPart { truth, predicted, difference };
// [H, T W, 3]: the frames of a camera side by side.
std::vector<std::uint8_t> rollout_strip(const RolloutFrames& frames, int camera, RolloutPart part);

struct RolloutSheetOptions {
  std::string title;
  std::vector<int> cameras = {0};  // three rows for each: truth, prediction, difference
  int most_columns = 8;            // steps, spread evenly; the first and the last are among them
  double step_seconds = .5;        // for the labels
  double tile = 128;
};

// Frames of more steps than columns are left out.
ContactSheet rollout_sheet(const RolloutFrames& frames, const RolloutSheetOptions& options);

// The bytes of an APNG: the truth on the left, the prediction in the middle, the difference on the right;
// cameras one below the other; small frames enlarged. Each step is shown for `seconds`, the last for longer.
std::string rollout_animation(const RolloutFrames& frames, double seconds = .25);

}  // namespace topomask::cli
