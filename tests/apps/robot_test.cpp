// `topomask simulate robot`, `render robot` and `show robot` as a user runs them. What needs MuJoCo is
// skipped without it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <sstream>

#include "run_program.h"
#include "running_program.h"
#include "topomask/rgbd.h"
#include "topomask/robot.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string kStates = TOPOMASK_ROBOT_STATES;

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != ".lock") files[name] = read_whole_file(entry.path().string());
  }
  return files;
}

std::vector<std::string> simulation(const std::string& out, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = {"simulate", "robot", "--out", out, "--frames", "26"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class SimulateRobot : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_simulator().empty()) GTEST_SKIP() << why_no_simulator();
  }
  const TemporaryDirectory scratch;
};

TEST_F(SimulateRobot, PrintsALineForEachTask) {
  const std::string out = scratch.path("robot");
  const ProgramResult result =
      run_program(simulation(out, {"--task", "lift-can", "--episodes", "3", "--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const json line = result.json();
  EXPECT_EQ(line["task"], "lift-can");
  EXPECT_EQ(line["episodes"], 3);
  EXPECT_EQ(line["succeeded"], 3);
  EXPECT_GT(line["seconds"], 0);
  EXPECT_EQ(line["simulated"], 3);
  // Other tasks and more episodes are added to the existing ones.
  const ProgramResult more =
      run_program(simulation(out, {"--task", "move-block", "--episodes", "1", "--seed", "0"}));
  EXPECT_EQ(more.status, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("move-block"));
  EXPECT_THAT(more.out, HasSubstr("1 (100 %)"));
  const RobotIndex index = read_robot_index(out);
  EXPECT_EQ(index.entries.size(), 4u);
  const ProgramResult again =
      run_program(simulation(out, {"--task", "lift-can", "--episodes", "2", "--json"}));
  EXPECT_EQ(again.json()["simulated"], 0);
  EXPECT_EQ(again.json()["seconds"], 0);
  EXPECT_THAT(index.simulator, ::testing::StartsWith("MuJoCo "));
  EXPECT_FALSE(fs::exists("MUJOCO_LOG.TXT"));
  expect_rejected(simulation(out, {"--episodes", "1", "--seed", "1"}), "holds episodes with seed 0");
  expect_rejected({"simulate", "robot", "--out", out, "--frames", "25"}, "holds episodes with frames 26");
  // Episodes of two simulators do not mix; those that are there stay as they are.
  std::string other = read_whole_file(out + "/index.json");
  other.replace(other.find(index.simulator), index.simulator.size(), "MuJoCo 1.2");
  scratch.write("robot/index.json", other);
  expect_rejected(simulation(out, {"--task", "lift-can", "--episodes", "4"}),
                  "holds episodes of MuJoCo 1.2, and cannot be continued with " + index.simulator);
  EXPECT_EQ(run_program(simulation(out, {"--task", "lift-can", "--episodes", "3"})).status, 0);
  EXPECT_EQ(read_robot_index(out).simulator, "MuJoCo 1.2");
}

TEST_F(SimulateRobot, IsTheSameForAnyNumberOfThreads) {
  for (const char* threads : {"1", "3"}) {
    const ProgramResult result =
        run_program({"simulate", "robot", "--out", scratch.path(threads), "--frames", "3", "--task", "all",
                     "--episodes", "2", "--seed", "5", "--threads", threads, "--quiet"});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "");
  }
  const auto one = files_of(scratch.path("1"));
  EXPECT_EQ(one.size(), 4u * 2 + 1);  // of all tasks, and the index
  EXPECT_EQ(one, files_of(scratch.path("3")));
}

TEST_F(SimulateRobot, ResumesAfterAKill) {
  const std::vector<std::string> more = {"--task",    "lift-can", "--episodes", "12",
                                         "--threads", "2",        "--quiet"};
  const std::string whole = scratch.path("whole"), killed = scratch.path("killed");
  ASSERT_EQ(run_program(simulation(whole, more)).status, 0);
  for (const int signal : {SIGKILL, SIGTERM}) {
    RunningProgram program(simulation(killed, more), scratch.path("err"));
    const auto episodes = [&] {
      std::error_code ignored;
      return std::count_if(fs::directory_iterator(killed, ignored), fs::directory_iterator(),
                           [](const auto& entry) { return entry.path().extension() == ".safetensors"; });
    };
    const auto before = episodes();
    ASSERT_TRUE(program.wait_until([&] { return episodes() >= before + 2; }));
    program.send(signal);
    EXPECT_EQ(program.wait(), signal == SIGKILL ? 128 + SIGKILL : 130);
    expect_rejected({"show", "robot", killed}, "is not complete");
  }
  EXPECT_THAT(read_whole_file(scratch.path("err")), HasSubstr("run the same command again to resume"));
  ASSERT_EQ(run_program(simulation(killed, more)).status, 0);
  EXPECT_EQ(files_of(killed), files_of(whole));
  // An episode that a failing disk spoiled is made again.
  scratch.write("killed/lift-can-000003.safetensors", "nothing");
  ASSERT_EQ(run_program(simulation(killed, more)).status, 0);
  EXPECT_EQ(files_of(killed), files_of(whole));
}

TEST_F(SimulateRobot, WrongSettingsGiveOneSentence) {
  const std::string out = scratch.path("robot");
  expect_rejected(simulation(out, {"--task", "sweeep"}), "did you mean 'sweep'");
  expect_rejected(simulation(out, {"--episodes", "0"}), "--episodes must be 1 to 1000000, got 0");
  expect_rejected(simulation(out, {"--cameras", "0"}), "--cameras must be 1 to 8, got 0");
  expect_rejected(simulation(out, {"--size", "2"}), "--size must be 8 to 4096, got 2");
  expect_rejected({"simulate", "robot"}, "--out");
  EXPECT_FALSE(fs::exists(out));
}

TEST(SimulateRobotMissing, SaysWhatIsMissing) {
  if (why_no_simulator().empty()) GTEST_SKIP() << "MuJoCo is here";
  const TemporaryDirectory scratch;
  expect_rejected(simulation(scratch.path("robot")), "simulating needs MuJoCo");
  EXPECT_FALSE(fs::exists(scratch.path("robot")));
}

TEST(RenderRobot, WritesWhatRgbdToolsExpect) {
  const TemporaryDirectory scratch;
  const std::string out = scratch.path("frames");
  const json result =
      run_json({"render", "robot", kStates, "--out", out, "--episode", "lift-can-000000", "--size", "32"});
  EXPECT_EQ(result["episodes"], 1);
  EXPECT_EQ(result["frames"], 24);
  EXPECT_EQ(result["size"], 32);
  const RobotEpisode episode = read_robot_episode(kStates + "/lift-can-000000.safetensors");
  RenderOptions options;
  options.width = options.height = 32;
  for (int camera = 0; camera < 2; ++camera) {
    const RgbdFolder folder(out + "/lift-can-000000/camera-" + std::to_string(camera));
    ASSERT_EQ(folder.frames(), 24);
    const RgbdImage read = folder.read(9), made = render_robot(episode, 9, camera, options);
    EXPECT_EQ(read.colour, made.colour);
    EXPECT_EQ(read.pose, made.pose);
    EXPECT_EQ(read.intrinsics, made.intrinsics);
    for (std::size_t i = 0; i < made.depth.size(); ++i) ASSERT_NEAR(read.depth[i], made.depth[i], 5.1e-4);
  }
  expect_rejected({"render", "robot", kStates, "--out", out}, "is there already");
}

// An episode has its name once all of its frames are there.
TEST(RenderRobot, LeavesNoHalfEpisodeAfterAKill) {
  const TemporaryDirectory scratch;
  const std::string out = scratch.path("frames");
  RunningProgram program({"render", "robot", kStates, "--out", out, "--size", "128", "--threads", "1"},
                         scratch.path("err"));
  ASSERT_TRUE(program.wait_until(
      [&] { return fs::exists(out + "/lift-can-000000.part/camera-0/frame-000000.color.png"); }));
  program.send(SIGKILL);
  ASSERT_EQ(program.wait(), 128 + SIGKILL);
  int whole = 0;
  for (const auto& entry : fs::directory_iterator(out)) {
    if (entry.path().extension() == ".part") continue;
    ++whole;
    for (const char* camera : {"/camera-0", "/camera-1"})
      EXPECT_EQ(RgbdFolder(entry.path().string() + camera).frames(), 24);
  }
  EXPECT_GE(whole, 1);  // sweep-000000, which comes first
}

TEST(RenderRobot, WrongInputGivesOneSentence) {
  const TemporaryDirectory scratch;
  const std::string out = scratch.path("frames");
  expect_rejected({"render", "robot", scratch.path("none"), "--out", out}, "is not a folder");
  expect_rejected({"render", "robot", scratch.path(""), "--out", out}, "index.json' is missing");
  expect_rejected({"render", "robot", kStates, "--out", out, "--episode", "4"}, "expected 0 to 3");
  expect_rejected({"render", "robot", kStates, "--out", out, "--episode", "sweep-00000"},
                  "did you mean 'sweep-000000'");
  expect_rejected({"render", "robot", kStates, "--out", out, "--size", "3"},
                  "--size: expected 8 to 4096, got 3");
  expect_rejected({"render", "robot", kStates, "--out", out, "--samples", "9"},
                  "--samples: expected 1 to 8, got 9");
  EXPECT_FALSE(fs::exists(out));
}

TEST(ShowRobot, WritesASheetAndAnAnimation) {
  const TemporaryDirectory scratch;
  const std::string stem = scratch.path("lift");
  const json result =
      run_json({"show", "robot", kStates, "--episode", "1", "--out", stem, "--size", "32", "--tile", "96"});
  EXPECT_EQ(result["episode"], "lift-can-000000");
  EXPECT_EQ(result["success"], true);
  EXPECT_EQ(result["animation"], stem + ".png");
  const std::string animation = read_whole_file(stem + ".png"), sheet = read_whole_file(stem + "-sheet.png");
  EXPECT_TRUE(animation.starts_with("\x89PNG"));
  EXPECT_TRUE(sheet.starts_with("\x89PNG"));
  std::size_t frames = 0;
  for (std::size_t at = animation.find("fcTL"); at != std::string::npos; at = animation.find("fcTL", at + 1))
    ++frames;
  EXPECT_EQ(frames, 24u);
  expect_rejected({"show", "robot", kStates, "--camera", "2", "--out", stem},
                  "--camera must be 0 to 1, got 2");
  expect_rejected({"show", "robot", kStates, "--size", "4", "--out", stem},
                  "--size: expected 8 to 4096, got 4");
  expect_rejected({"show", "robot", kStates, "--tile", "9", "--out", stem},
                  "--tile: expected 96 to 1024, got 9");
  expect_rejected({"show", "robot", kStates, "--columns", "0", "--out", stem},
                  "--columns: expected 1 to 100, got 0");
  expect_rejected({"show", "robot", kStates, "--every", "0", "--out", stem},
                  "--every: expected a number from 1, got 0");
}

}  // namespace
}  // namespace topomask::testing
