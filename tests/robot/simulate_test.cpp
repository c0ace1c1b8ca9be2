// The simulator itself; skipped where MuJoCo is not installed.
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "stored.h"
#include "support/expect_error.h"

#if __has_include(<mujoco/mujoco.h>)
#include "robot/cpu/mujoco_library.h"
#endif

namespace topomask::testing {
namespace {

class Simulate : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_simulator().empty()) GTEST_SKIP() << why_no_simulator();
  }
};

RobotOptions stored_options() {
  RobotOptions options;
  options.frames = 24;
  return options;
}

// Two episodes of every task, one after the other and all at once. Short ones: settling grains take most of
// the time.
TEST_F(Simulate, AnyThreadGivesTheSameBytes) {
  RobotOptions options;
  options.frames = 3;
  constexpr std::size_t kEpisodes = 2 * std::size(kTasks);
  std::string alone[kEpisodes], beside[kEpisodes];
  const auto simulate = [&](std::string* bytes, std::size_t i) {
    bytes[i] = format_robot_episode(simulate_robot(kTasks[i / 2], static_cast<std::int64_t>(i % 2), options));
  };
  for (std::size_t i = 0; i < kEpisodes; ++i) simulate(alone, i);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kEpisodes; ++i) threads.emplace_back([&, i] { simulate(beside, i); });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < kEpisodes; ++i) {
    EXPECT_EQ(alone[i], beside[i]) << word_of(kTasks[i / 2]) << " " << i % 2;
    EXPECT_NE(alone[i], alone[i ^ 1]) << word_of(kTasks[i / 2]);
    EXPECT_EQ(parse_robot_episode(alone[i], "file").frames, 3);
  }
}

// Grains meet so often that another processor's rounding may change where they end, but not what the arms are
// told.
TEST_F(Simulate, CommandsAreThoseOfTheStoredEpisodes) {
  for (const RobotTask task : kTasks) {
    RobotOptions options = stored_options();
    if (task == RobotTask::sweep) options.frames = 4;  // settling grains take most of its time
    const RobotEpisode episode = simulate_robot(task, 0, options);
    const RobotEpisode& stored = stored_episode(task);
    EXPECT_EQ(episode.bodies, stored.bodies);
    EXPECT_EQ(episode.attempts, stored.attempts);
    for (std::size_t i = 0; i < episode.joint_command.size(); ++i)
      ASSERT_NEAR(episode.joint_command[i], stored.joint_command[i], 1e-4) << word_of(task) << " " << i;
    for (std::size_t i = 0; i < episode.commanded_position.size(); ++i)
      ASSERT_NEAR(episode.commanded_position[i], stored.commanded_position[i], 1e-4);
  }
}

TEST_F(Simulate, FramesOfStoredStatesAreThoseOfTheSimulation) {
  const RobotEpisode episode = simulate_robot(RobotTask::move_block, 1, stored_options());
  const RobotEpisode stored = parse_robot_episode(format_robot_episode(episode), "file");
  for (int camera = 0; camera < 2; ++camera) {
    const RgbdImage a = render_robot(episode, 12, camera), b = render_robot(stored, 12, camera);
    EXPECT_EQ(a.colour, b.colour);
    EXPECT_EQ(a.depth, b.depth);
    EXPECT_EQ(a.segment, b.segment);
  }
}

#if __has_include(<mujoco/mujoco.h>)
// Not those of a file MUJOCO_LOG.TXT, and not the end of the process.
TEST_F(Simulate, WarningsAndErrorsOfMujocoAreOurs) {
  const auto step = [](const char* memory, double height) {
    std::string balls;
    for (int i = 0; i < 30; ++i)
      balls += "<body pos='0 0 " + std::to_string(.05 + .05 * i) + "'><freejoint/><geom size='.05'/></body>";
    const robot::ModelPtr model = robot::compile_scene(std::string("<mujoco><size memory='") + memory +
                                                       "'/><worldbody><geom type='plane' size='1 1 1'/>" +
                                                       balls + "</worldbody></mujoco>");
    const robot::DataPtr data = robot::make_data(*model);
    data->qpos[2] = height;
    robot::mujoco().step(model.get(), data.get());
  };
  robot::take_warnings();
  step("1M", .05);
  EXPECT_TRUE(robot::take_warnings().empty());
  step("1M", 1e30);
  const std::vector<std::string> warnings = robot::take_warnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(warnings[0].starts_with("Nan, Inf or huge value in QPOS")) << warnings[0];
  EXPECT_EQ(warnings[0].find("Time"), std::string::npos);
  expect_error([&] { step("20K", .05); }, {"MuJoCo: ", "out of memory"});
  EXPECT_FALSE(std::filesystem::exists("MUJOCO_LOG.TXT"));
}
#endif

TEST_F(Simulate, MostEpisodesShowTheirTask) {
  for (const RobotTask task : {RobotTask::lift_can, RobotTask::move_block, RobotTask::drop_can}) {
    int succeeded = 0;
    for (std::int64_t number = 0; number < 3; ++number) succeeded += simulate_robot(task, number, {}).success;
    EXPECT_GE(succeeded, 2) << word_of(task);
  }
}

TEST_F(Simulate, ArmsFollowTheirCommands) {
  const RobotEpisode episode = simulate_robot(RobotTask::lift_can, 2, {});
  double worst = 0;
  for (std::size_t i = 0; i < episode.joint_position.size(); ++i)
    worst = std::max<double>(worst, std::abs(episode.joint_position[i] - episode.joint_command[i]));
  EXPECT_LT(worst, .2);  // radians: the motors lag behind
  EXPECT_GT(worst, 1e-4);
}

TEST(SimulateMissing, SaysWhatIsMissing) {
  const std::string problem = why_no_simulator();
  if (problem.empty()) GTEST_SKIP() << "MuJoCo is here";
  EXPECT_TRUE(problem.starts_with("simulating needs MuJoCo"));
  expect_error([] { simulate_robot(RobotTask::sweep, 0, {}); }, problem.c_str());
}

TEST_F(Simulate, WrongSettingsGiveOneSentence) {
  RobotOptions options;
  options.frames = 1;
  expect_error([&] { simulate_robot(RobotTask::sweep, 0, options); }, "frames must be 2 to 1000, got 1");
  options = {};
  options.cameras = 9;
  expect_error([&] { simulate_robot(RobotTask::sweep, 0, options); }, "cameras must be 1 to 8, got 9");
  options = {};
  options.size = 0;
  expect_error([&] { simulate_robot(RobotTask::sweep, 0, options); }, "size must be 8 to 4096, got 0");
  expect_error([&] { simulate_robot(RobotTask::sweep, -1, {}); }, "number must be at least 0, got -1");
}

}  // namespace
}  // namespace topomask::testing
