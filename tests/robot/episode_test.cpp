// Episodes in files: the same after a round trip, and one sentence for everything that is wrong with one.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "io/files.h"
#include "io/safetensors_header.h"
#include "robot/cpu/checks.h"
#include "stored.h"
#include "support/expect_error.h"

namespace topomask::testing {
namespace {

using robot::format_robot_index;
using robot::parse_robot_index;

TEST(RobotEpisode, IsTheSameAfterARoundTrip) {
  for (const RobotTask task : kTasks) {
    const RobotEpisode& episode = stored_episode(task);
    const std::string bytes = format_robot_episode(episode);
    EXPECT_EQ(bytes, read_file(kStates + "/" + robot::episode_file(task, 0)));
    const RobotEpisode again = parse_robot_episode(bytes, "file");
    EXPECT_EQ(again.body_position, episode.body_position);
    EXPECT_EQ(again.grip_command, episode.grip_command);
    EXPECT_EQ(again.measure, episode.measure);
    EXPECT_EQ(again.shapes.size(), episode.shapes.size());
    EXPECT_EQ(format_robot_episode(again), bytes);
  }
}

TEST(RobotEpisode, ShowsItsTask) {
  for (const RobotTask task : kTasks) {
    const RobotEpisode& episode = stored_episode(task);
    const RobotVerdict verdict = judge_robot(episode);
    EXPECT_TRUE(verdict.success) << word_of(task);
    EXPECT_EQ(verdict.success, episode.success);
    EXPECT_EQ(verdict.measure, episode.measure);
    EXPECT_EQ(episode.bodies, task == RobotTask::sweep ? 77 : 24);
  }
}

// What is judged, by hand: moves the object of a task in the last frame.
RobotEpisode with_last_position(RobotTask task, int body, std::array<float, 3> shift) {
  RobotEpisode episode = stored_episode(task);
  for (std::size_t k = 0; k < 3; ++k) {
    const auto at = [&](int frame) {
      return 3 * static_cast<std::size_t>(frame * episode.bodies + body) + k;
    };
    episode.body_position[at(episode.frames - 1)] = episode.body_position[at(0)] + shift[k];
  }
  return episode;
}

TEST(RobotEpisode, IsJudgedByWhatItShows) {
  constexpr int kCan = 21, kBlock = 22;
  EXPECT_FALSE(judge_robot(with_last_position(RobotTask::lift_can, kCan, {0, 0, .05f})).success);
  EXPECT_TRUE(judge_robot(with_last_position(RobotTask::lift_can, kCan, {0, 0, .07f})).success);
  EXPECT_NEAR(judge_robot(with_last_position(RobotTask::lift_can, kCan, {0, 0, .07f})).measure, .07, 1e-6);
  EXPECT_FALSE(judge_robot(with_last_position(RobotTask::move_block, kBlock, {.03f, .03f, 0})).success);
  EXPECT_TRUE(judge_robot(with_last_position(RobotTask::move_block, kBlock, {.04f, .04f, 0})).success);
  EXPECT_FALSE(judge_robot(with_last_position(RobotTask::move_block, kBlock, {.04f, .04f, -.1f})).success);
  EXPECT_TRUE(judge_robot(with_last_position(RobotTask::drop_can, kCan, {.02f, 0, 0})).success);
  EXPECT_FALSE(
      judge_robot(with_last_position(RobotTask::drop_can, kCan, {.02f, 0, .1f})).success);  // still held
  EXPECT_FALSE(
      judge_robot(with_last_position(RobotTask::drop_can, kCan, {.3f, 0, -.5f})).success);  // off the table
  // Half of the grains thrown out of the pan.
  RobotEpisode sweep = stored_episode(RobotTask::sweep);
  const double all = judge_robot(sweep).measure;
  for (int grain = 17; grain < 77; grain += 2) {
    const std::size_t z = 3 * static_cast<std::size_t>((sweep.frames - 1) * sweep.bodies + grain) + 2;
    sweep.body_position[z] = .5f;
  }
  EXPECT_NEAR(judge_robot(sweep).measure, all / 2, .15);
  RobotEpisode other = stored_episode(RobotTask::lift_can);
  other.task = RobotTask::sweep;
  expect_error([&] { judge_robot(other); }, "shows no pan");
}

TEST(RobotEpisode, DamagedFilesGiveOneSentence) {
  const std::string good = format_robot_episode(stored_episode(RobotTask::lift_can));
  const auto parse = [](const std::string& bytes) { return [bytes] { parse_robot_episode(bytes, "file"); }; };
  expect_error(parse(""), "file");
  expect_error(parse(good.substr(0, 100)), "file");
  expect_error(parse(good.substr(0, good.size() - 1)), "file");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    EXPECT_EQ(from.size(), to.size());
    std::string bytes = good;
    bytes.replace(bytes.find(from), from.size(), to);
    return bytes;
  };
  expect_error(parse(replaced("topomask robot episode 1", "topomask robot episode 9")),
               {"file", "is no episode of the robot", "topomask robot episode 9"});
  expect_error(parse(replaced("\"lift-can\"", "\"lift-car\"")), {"file", "unknown task 'lift-car'"});
  expect_error(parse(replaced("body.position", "bodi.position")),
               {"file", "tensor 'body.position' is missing"});
  expect_error(parse(replaced("[24,2,7]", "[24,7,2]")),
               {"file", "joint.", "expected", "[24, 2, 7]", "[24, 7, 2]"});
}

TEST(RobotEpisode, NumbersThatCannotBeGiveOneSentence) {
  const auto spoiled = [](const std::function<void(RobotEpisode&)>& spoil) {
    RobotEpisode episode = stored_episode(RobotTask::lift_can);
    spoil(episode);
    return [episode] { format_robot_episode(episode); };
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  expect_error(spoiled([](RobotEpisode& e) { e.body_position[7] = kNan; }),
               "body.position holds a number that is not finite");
  expect_error(spoiled([](RobotEpisode& e) { e.joint_velocity[0] = 1e30f; }),
               "joint.velocity holds a number that is not finite, or above 1000");
  expect_error(spoiled([](RobotEpisode& e) { e.grip.pop_back(); }),
               "expected 48 numbers as grip.position, got 47");
  expect_error(spoiled([](RobotEpisode& e) { e.body_rotation[0] = 3; }),
               "a quaternion whose length is not 1");
  expect_error(spoiled([](RobotEpisode& e) { e.shapes[3].body = 24; }), "a shape belongs to body 24 of 24");
  expect_error(spoiled([](RobotEpisode& e) { e.shapes[3].size[0] = 0; }), "a shape has sizes");
  expect_error(spoiled([](RobotEpisode& e) { e.cameras.clear(); }), "expected 1 to 8 cameras, got 0");
  expect_error(spoiled([](RobotEpisode& e) { e.cameras[0].field_of_view = kNan; }), "a camera has a pose");
  expect_error(spoiled([](RobotEpisode& e) { e.frames = 0; }), "are no episode");
}

TEST(RobotIndex, IsTheSameAfterARoundTrip) {
  const std::string text = read_file(kStates + "/index.json");
  const RobotIndex index = read_robot_index(kStates);
  EXPECT_EQ(index.entries.size(), 4u);
  EXPECT_EQ(index.options.frames, 24);
  EXPECT_TRUE(index.complete);
  EXPECT_EQ(format_robot_index(index), text);
  EXPECT_EQ(index.simulator, "");  // written before it was told
  RobotIndex told = index;
  told.simulator = simulator_version();
  EXPECT_EQ(parse_robot_index(format_robot_index(told), "file").simulator, simulator_version());
}

TEST(FrameCache, WantsMemoryForAllFrames) {
  robot::check_frame_cache(192, 32, 192 * 32 * 32 * 9);
  expect_error([] { robot::check_frame_cache(192, 32, 192 * 32 * 32 * 9 - 1); },
               {"keeping 192 rendered frames of 32 x 32 pixels takes 1.77 MB of memory, but 1.77 MB are free",
                "--no-cache"});
}

TEST(RobotIndex, WhatIsNoneGivesOneSentence) {
  const std::string folder = ::testing::TempDir() + "/robot-index";
  std::filesystem::remove_all(folder);
  expect_error([&] { read_robot_index(folder); }, {"robot-index", "is not a folder"});
  std::filesystem::create_directories(folder);
  expect_error([&] { read_robot_index(folder); }, {"index.json", "is missing"});
  RobotIndex index = read_robot_index(kStates);
  index.complete = false;
  write_file(folder + "/index.json", format_robot_index(index));
  expect_error([&] { read_robot_index(folder); }, {"is not complete", "run the same command again"});
  const std::string good = format_robot_index(index);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return [text] { parse_robot_index(text, "file"); };
  };
  expect_error([] { parse_robot_index("{", "file"); }, {"file", "it is not JSON"});
  expect_error([] { parse_robot_index("[]", "file"); }, {"file", "is no index of robot episodes"});
  expect_error(replaced("\"frames\": 24", "\"frames\": -1"),
               {"file", "whole number from 0 as 'frames', got -1"});
  expect_error(replaced("\"frames\": 24", "\"frames\": 1"), "frames must be 2 to 1000, got 1");
  expect_error(replaced("sweep-000000.safetensors", "../secret"), {"file", "expected a file of its folder"});
  expect_error(replaced("\"task\": \"sweep\"", "\"task\": \"sleep\""), {"file", "unknown task 'sleep'"});
  expect_error(replaced("\"seed\"", "\"seal\""), {"file", "'seed' is missing"});
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace topomask::testing
