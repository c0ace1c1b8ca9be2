// Predicted frames beside true ones: sheets, strips and animations.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "decode_png.h"
#include "draw/rollout_tensors.h"
#include "io/files.h"
#include "support/expect_error.h"

namespace topomask::cli {
namespace {

using testing::expect_error;

// Two cameras. The first column tells the step; elsewhere the prediction of the second camera is darker by 51
// of 255 in the lower half.
RolloutFrames small_rollout(std::int64_t steps = 5) {
  at::Tensor truth = at::full({steps, 2, 4, 6, 3}, 200, at::kByte);
  for (std::int64_t step = 0; step < steps; ++step) truth[step].select(2, 0).fill_(10 * step);
  at::Tensor predicted = truth.clone();
  predicted.select(1, 1).narrow(1, 2, 2).narrow(2, 1, 5).sub_(51);
  return rollout_frames(truth, predicted);
}

TEST(RolloutPictures, FramesComeFromBytesAndFromNumbers) {
  const at::Tensor values = at::tensor({0., .5, 1., 1.2, -3., .25}).view({1, 1, 1, 2, 3});
  const RolloutFrames frames = rollout_frames(values, values.to(at::kFloat));
  EXPECT_EQ(frames.truth, (std::vector<std::uint8_t>{0, 128, 255, 255, 0, 64}));
  EXPECT_EQ(frames.predicted, frames.truth);
  expect_error([&] { rollout_frames(values, values[0]); }, "expected two tensors [T, C, H, W, 3]");
  expect_error([&] { rollout_frames(values.to(at::kLong), values.to(at::kLong)); },
               "of uint8 or floating point");
}

TEST(RolloutPictures, StripsHoldTheFramesSideBySide) {
  const RolloutFrames frames = small_rollout();
  const std::vector<std::uint8_t> truth = rollout_strip(frames, 1, RolloutPart::truth),
                                  predicted = rollout_strip(frames, 1, RolloutPart::predicted),
                                  difference = rollout_strip(frames, 1, RolloutPart::difference);
  const auto red = [](const std::vector<std::uint8_t>& strip, int row, int column) {
    return static_cast<int>(strip[static_cast<std::size_t>(row * 30 + column) * 3]);
  };
  ASSERT_EQ(truth.size(), 4u * 30u * 3u);
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(red(truth, 3, 6 * step), 10 * step);
    EXPECT_EQ(red(truth, 0, 6 * step + 1), 200);
    EXPECT_EQ(red(predicted, 1, 6 * step + 1), 200);
    EXPECT_EQ(red(predicted, 2, 6 * step + 1), 149);
    EXPECT_EQ(red(difference, 1, 6 * step + 1), 255);
    EXPECT_EQ(red(difference, 2, 6 * step + 1), 153);  // .2 of the range is .4 of what is black
  }
  EXPECT_EQ(rollout_strip(frames, 0, RolloutPart::truth), rollout_strip(frames, 0, RolloutPart::predicted));
  expect_error([&] { rollout_strip(frames, 2, RolloutPart::truth); }, "camera must be 0 to 1, got 2");
}

TEST(RolloutPictures, SheetsShowTheFirstAndTheLastStep) {
  RolloutSheetOptions options;
  options.title = "sweep-000003, predicted from frames 4 and 5";
  options.cameras = {0, 1};
  options.most_columns = 4;
  const ContactSheet sheet = rollout_sheet(small_rollout(24), options);
  ASSERT_EQ(sheet.pictures.size(), 6u);
  ASSERT_EQ(sheet.pictures[0].size(), 4u);
  EXPECT_EQ(sheet.row_titles, (std::vector<std::string>{"0: truth", "0: predicted", "0: difference",
                                                        "1: truth", "1: predicted", "1: difference"}));
  EXPECT_EQ(sheet.pictures[2].front().label, "step 1, 0.5 s");
  EXPECT_EQ(sheet.pictures[2].back().label, "step 24, 12.0 s");
  EXPECT_EQ(sheet.pictures[4][1].pixels[14].red, 149);
  const std::string path = ::testing::TempDir() + "/rollout-sheet.png";
  const std::vector<Picture::Text> texts =
      write_contact_sheet(sheet, {"topomask rollout", "a machine"}, path);
  const Pixels pixels = decode_png(read_file(path));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_GE(texts[i].box.left, 0) << texts[i].text;
    EXPECT_GE(texts[i].box.top, 0) << texts[i].text;
    EXPECT_LE(2 * texts[i].box.right(), pixels.width) << texts[i].text;
    EXPECT_LE(2 * texts[i].box.bottom(), pixels.height) << texts[i].text;
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_FALSE(texts[i].box.overlaps(texts[j].box)) << texts[i].text << " and " << texts[j].text;
  }
  std::remove(path.c_str());
  options.cameras = {2};
  expect_error([&] { rollout_sheet(small_rollout(), options); }, "camera must be 0 to 1, got 2");
  expect_error([&] { rollout_sheet({}, {}); }, "expected 0 bytes of both kinds for 0 steps");
}

TEST(RolloutPictures, AnimationsShowTruthPredictionAndDifference) {
  const Pixels first = decode_png(rollout_animation(small_rollout()));
  // 32-fold: 6 x 4 pixels become 192 x 128; 4 pixels between pictures.
  ASSERT_EQ(first.width, 3u * 192 + 8);
  ASSERT_EQ(first.height, 2u * 128 + 4);
  EXPECT_EQ(first.at(40, 10), (std::array<int, 3>{200, 200, 200}));
  EXPECT_EQ(first.at(31, 131), (std::array<int, 3>{255, 255, 255}));              // between the cameras
  EXPECT_EQ(first.at(196 + 40, 132 + 100), (std::array<int, 3>{149, 149, 149}));  // predicted
  EXPECT_EQ(first.at(2 * 196 + 40, 132 + 100), (std::array<int, 3>{153, 153, 153}));
  EXPECT_EQ(first.at(2 * 196 + 40, 100), (std::array<int, 3>{255, 255, 255}));
}

}  // namespace
}  // namespace topomask::cli
