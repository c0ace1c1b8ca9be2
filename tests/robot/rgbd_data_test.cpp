// Simulated and recorded sequences through one interface, as tensors.
#include "topomask/rgbd_data.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/parallel.h"
#include "io/files.h"
#include "stored.h"
#include "support/expect_error.h"
#include "topomask/neighbours.h"
#include "topomask/rgbd_geometry.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;

class RgbdDataFolder : public ::testing::Test {
 protected:
  RgbdDataFolder() { fs::remove_all(folder); }
  ~RgbdDataFolder() override { fs::remove_all(folder); }
  const std::string folder =
      ::testing::TempDir() + "/rgbd-data-" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

template <class Value>
bool holds(const at::Tensor& tensor, const std::vector<Value>& values) {
  return tensor.nbytes() == values.size() * sizeof(Value) &&
         std::memcmp(tensor.const_data_ptr(), values.data(), tensor.nbytes()) == 0;
}

TEST(RgbdData, MomentsOfTheRobotAreItsFrames) {
  RgbdOptions options;
  options.size = 32;
  const auto data = open_rgbd(kStates, options);
  ASSERT_EQ(data->episodes(), 4);
  EXPECT_EQ(data->frames(2), 24);
  EXPECT_EQ(data->cameras(), 2);
  EXPECT_EQ(data->name(0), "sweep-000000");
  EXPECT_EQ(data->name(3), "drop-can-000000");
  const RgbdMoment moment = data->moment(1, 7);
  EXPECT_EQ(moment.colour.sizes(), (at::IntArrayRef{2, 32, 32, 3}));
  EXPECT_EQ(moment.depth.sizes(), (at::IntArrayRef{2, 32, 32}));
  EXPECT_EQ(moment.intrinsics.sizes(), (at::IntArrayRef{2, 4}));
  EXPECT_EQ(moment.poses.sizes(), (at::IntArrayRef{2, 4, 4}));
  RenderOptions render;
  render.width = render.height = 32;
  for (int camera = 0; camera < 2; ++camera) {
    const RgbdImage image = render_robot(stored_episode(RobotTask::lift_can), 7, camera, render);
    EXPECT_TRUE(holds(moment.colour[camera], image.colour));
    EXPECT_TRUE(holds(moment.depth[camera], image.depth));
    EXPECT_TRUE(holds(moment.segments[camera], image.segment));
    EXPECT_TRUE(holds(moment.poses[camera], std::vector<float>(image.pose.begin(), image.pose.end())));
    EXPECT_TRUE(holds(moment.intrinsics[camera],
                      std::vector<float>(image.intrinsics.begin(), image.intrinsics.end())));
  }
  EXPECT_EQ(open_rgbd(kStates)->moment(0, 0).depth.size(1), 128);  // as the data set says
}

TEST(RgbdData, ThreadsAndCachesChangeNothing) {
  RgbdOptions options;
  options.size = 16;
  const auto plain = open_rgbd(kStates, options);
  options.cache = true;
  const auto cached = open_rgbd(kStates, options);
  const std::vector<RgbdPlace> places = {{0, 3}, {3, 23}, {0, 3}, {2, 11}};
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<RgbdMoment> alone = plain->moments(places);
  set_num_threads(4);
  for (const auto& data : {&plain, &cached, &cached}) {
    const std::vector<RgbdMoment> moments = (*data)->moments(places);
    ASSERT_EQ(moments.size(), places.size());
    for (std::size_t i = 0; i < places.size(); ++i) {
      EXPECT_TRUE(at::equal(moments[i].colour, alone[i].colour));
      EXPECT_TRUE(at::equal(moments[i].depth, alone[i].depth));
      EXPECT_TRUE(at::equal(moments[i].segments, alone[i].segments));
    }
  }
  set_num_threads(before);
}

TEST(RgbdData, StatesAreTensors) {
  const auto data = open_rgbd(kStates);
  const RobotEpisode& episode = *data->robot(2);
  EXPECT_EQ(episode.task, RobotTask::move_block);
  const RobotTensors states = data->robot_tensors(2);
  EXPECT_EQ(states.body_position.sizes(), (at::IntArrayRef{24, 24, 3}));
  EXPECT_EQ(states.commanded_rotation.sizes(), (at::IntArrayRef{24, 20, 4}));
  EXPECT_EQ(states.joint_command.sizes(), (at::IntArrayRef{24, 2, 7}));
  EXPECT_EQ(states.grip.sizes(), (at::IntArrayRef{24, 2}));
  EXPECT_TRUE(holds(states.body_rotation, episode.body_rotation));
  EXPECT_TRUE(holds(states.joint_position, episode.joint_position));
  EXPECT_TRUE(holds(states.joint_command, episode.joint_command));
  EXPECT_TRUE(holds(states.grip_command, episode.grip_command));
  EXPECT_EQ(states.shape_body.size(0), static_cast<std::int64_t>(episode.shapes.size()));
  EXPECT_EQ(states.shape_part[0].item<std::int64_t>(), static_cast<std::int64_t>(ScenePart::table));
  EXPECT_LT(states.shape_body.max().item<std::int64_t>(), states.body_position.size(1));
}

TEST_F(RgbdDataFolder, RecordedFramesComeThroughTheSameInterface) {
  fs::create_directories(folder);
  const RgbdImage image = render_robot(stored_episode(RobotTask::lift_can), 3, 1);
  write_rgbd_intrinsics(folder, image.intrinsics);
  write_rgbd_frame(folder, 4, image);
  write_rgbd_frame(folder, 8, image);
  const auto data = open_rgbd(folder + "/");
  EXPECT_EQ(data->episodes(), 1);
  EXPECT_EQ(data->frames(0), 2);
  EXPECT_EQ(data->cameras(), 1);
  EXPECT_EQ(data->name(0), fs::path(folder).filename().string());
  EXPECT_EQ(data->robot(0), nullptr);
  const RgbdMoment moment = data->moment(0, 1);
  EXPECT_EQ(moment.colour.sizes(), (at::IntArrayRef{1, 128, 128, 3}));
  EXPECT_TRUE(holds(moment.colour[0], image.colour));
  EXPECT_FALSE(moment.segments.defined());
  expect_error([&] { data->robot_tensors(0); }, "only simulated episodes have states");
  expect_error([&] { data->moment(0, 2); }, "frame must be 0 to 1, got 2");
  expect_error([&] { data->moment(1, 0); }, "episode must be 0 to 0, got 1");
}

// The known points of a frame, on every `stride`-th row and column: [P, 3].
at::Tensor recorded_points(const RgbdMoment& moment, std::int64_t stride) {
  const auto thinned = [&](const at::Tensor& x) { return x.slice(1, 0, {}, stride).slice(2, 0, {}, stride); };
  const at::Tensor points = unproject(moment.depth, moment.intrinsics, moment.poses);
  return thinned(points).flatten(0, 2).index({thinned(known_depth(moment.depth)).flatten()});
}

double median_distance(const at::Tensor& from, const at::Tensor& to) {
  NeighbourOptions options;
  options.queries = from;
  return knn(to, 1, options).distance2.sqrt().median().item<double>();
}

// Two frames some seconds apart see the same room from two places, so their points lie on the same surfaces.
// Points that both see are centimetres apart (the depth camera's noise), those in a part of the room that one
// alone sees more. With world to camera in place of camera to world, the surfaces do not meet.
TEST(RgbdData, RecordedFramesShowOneRoom) {
  const char* data = std::getenv("TOPOMASK_DATA");
  const std::string folder = data == nullptr ? "" : std::string(data) + "/rgbd7s";
  if (folder.empty() || !fs::exists(folder)) GTEST_SKIP() << "TOPOMASK_DATA is not set";
  const auto frames = open_rgbd(folder);
  ASSERT_GT(frames->frames(0), 20);
  constexpr std::int64_t kEvery = 4;  // of 7-Scenes' frames is there: frame 80 is the 20th
  RgbdMoment first = frames->moment(0, 0), later = frames->moment(0, 80 / kEvery);
  const auto distances = [&] {
    const at::Tensor a = recorded_points(first, 4), b = recorded_points(later, 4);
    return std::pair(median_distance(a, b), median_distance(b, a));
  };
  const auto [there, back] = distances();
  EXPECT_LT(there, .06);
  EXPECT_LT(back, .06);
  for (RgbdMoment* moment : {&first, &later}) moment->poses = at::linalg_inv(moment->poses);
  const auto [wrong_there, wrong_back] = distances();
  EXPECT_GT(wrong_there, 4 * there);
  EXPECT_GT(wrong_back, 4 * back);
}

TEST_F(RgbdDataFolder, WhatCannotBeOpenedGivesOneSentence) {
  expect_error([&] { open_rgbd(folder); }, "is not a folder");
  fs::create_directories(folder);
  expect_error([&] { open_rgbd(folder); },
               {"holds no RGB-D data", "topomask simulate robot", "camera-intrinsics.txt"});
  fs::remove_all(folder);
  fs::copy(kStates, folder);
  RgbdOptions options;
  options.size = 4;
  expect_error([&] { open_rgbd(folder, options); }, "size must be 8 to 4096, got 4");
  fs::remove(folder + "/lift-can-000000.safetensors");
  expect_error([&] { open_rgbd(folder); }, "lift-can-000000.safetensors");
  // An episode that was cut short, and one that lacks a camera.
  RobotEpisode episode = stored_episode(RobotTask::lift_can);
  episode.cameras.pop_back();
  write_file(folder + "/lift-can-000000.safetensors", format_robot_episode(episode));
  expect_error([&] { open_rgbd(folder); }, "has 1 cameras, but its data set has 2");
  episode = stored_episode(RobotTask::lift_can);
  episode.frames = 23;
  for (const auto& [array, size] :
       {std::pair{&episode.body_position, 72}, std::pair{&episode.body_rotation, 96},
        std::pair{&episode.commanded_position, 60}, std::pair{&episode.commanded_rotation, 80},
        std::pair{&episode.joint_position, 14}, std::pair{&episode.joint_velocity, 14},
        std::pair{&episode.joint_command, 14}, std::pair{&episode.grip, 2},
        std::pair{&episode.grip_command, 2}})
    array->resize(array->size() - static_cast<std::size_t>(size));
  write_file(folder + "/lift-can-000000.safetensors", format_robot_episode(episode));
  expect_error([&] { open_rgbd(folder); }, "has 23 frames, but its data set has 24");
}

}  // namespace
}  // namespace topomask::testing
