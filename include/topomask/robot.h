// A simulated robot with two arms at a table: its states, and camera frames of them.
//
// The paper trains its particle models (section 4 "point clouds", appendix C) on recordings of a robot that
// are not public. Scripted tasks with random variation, simulated with MuJoCo, take their place. The states
// are the data set. Frames are a function of states and need no MuJoCo: they are rendered by ray casting when
// needed. Does not include torch; rgbd_data.h has episodes as tensors.
//
// Units are metres, radians and seconds. World: x away from the robot, y to its left, z up; the table's top
// is z = 0.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "topomask/rgbd.h"
#include "topomask/words.h"

namespace topomask {

enum class RobotTask : std::uint8_t { sweep, lift_can, move_block, drop_can };
template <>
std::span<const Word<RobotTask>> words<RobotTask>();

enum class ShapeKind : std::uint8_t { sphere, capsule, cylinder, box };
enum class ScenePart : std::uint8_t { table, left_arm, right_arm, brush, pan, can, block, carton, grain };
enum class SurfacePattern : std::uint8_t { plain, squares, label, edges };

inline constexpr int kRobotArms = 2;    // left, right
inline constexpr int kRobotJoints = 7;  // of an arm
inline constexpr double kRobotFrameSeconds = 0.5;
inline constexpr int kRobotFrames = 26;  // a whole task

// A piece of a body's surface. Sizes: radius (sphere); radius, half length without the caps (capsule),
// radius, half length (cylinder), along z; half lengths (box).
struct RobotShape {
  ShapeKind kind = ShapeKind::sphere;
  ScenePart part = ScenePart::table;
  SurfacePattern pattern = SurfacePattern::plain;
  std::int32_t body = 0;
  std::array<float, 3> size{};
  std::array<float, 3> position{};            // in the body's frame
  std::array<float, 4> rotation{1, 0, 0, 0};  // quaternion w x y z
  std::array<float, 3> colour{};              // 0 to 1
};

struct RobotCamera {
  std::array<float, 3> position{};
  std::array<float, 9> rotation{};  // [3, 3], camera to world; the camera looks along its z, y is down
  float field_of_view = 0;          // vertical, in radians
};

// T frames of B bodies. Body 0 is the world; bodies 1 to R are the robot's (base, links 1 to 7 and fingers of
// the left arm, then of the right); objects follow.
struct RobotEpisode {
  RobotTask task = RobotTask::sweep;
  std::int64_t number = 0;
  std::uint64_t seed = 0;  // of the data set; task and number select the episode
  int attempts = 1;        // how many plans were drawn until both hands could reach every pose
  int frames = 0, bodies = 0, robot_bodies = 0;
  bool success = false;  // whether the episode shows its task: see judge_robot
  double measure = 0;

  std::vector<RobotShape> shapes;
  std::vector<RobotCamera> cameras;
  std::vector<float> body_position, body_rotation;  // [T, B, 3], [T, B, 4] quaternions w x y z
  // [T, R, 3], [T, R, 4]: where the commands put bodies 1..R
  std::vector<float> commanded_position, commanded_rotation;
  std::vector<float> joint_position, joint_velocity;  // [T, 2, 7]
  std::vector<float> joint_command;                   // [T, 2, 7], the action: what the motors were told
  std::vector<float> grip, grip_command;  // [T, 2], how far each finger is from the middle; 0: a tool
};

// What an episode is judged by, from its states alone.
//
//   sweep       share of the grains that lie in the pan at the end; success from 0.4
//   lift-can    how much higher the can is at the end; success above 0.06 m
//   move-block  how far the block lies from where it was; success above 0.05 m, on the table
//   drop-can    how high the can was; success above 0.06 m, and back on the table at the end
struct RobotVerdict {
  bool success = false;
  double measure = 0;
};
RobotVerdict judge_robot(const RobotEpisode& episode);

struct RobotOptions {
  std::uint64_t seed = 0;
  // Fewer show the beginning of a task only; in more of them the arms wait at the end.
  int frames = kRobotFrames;
  int cameras = 2;  // 1 to 8, on an arc in front of the table
  int size = 128;   // of the frames, in pixels, where the reader asks for no other
};

// Empty where episodes can be simulated; else one sentence that says what is missing.
std::string why_no_simulator();

// "MuJoCo 3.17.0": what this build simulates with, where it can. Other versions give other states.
std::string simulator_version();

// A function of its arguments: any thread gives the same bytes. `warnings`, where given, gets what the
// simulator warned of. Throws where there is no simulator.
RobotEpisode simulate_robot(RobotTask task, std::int64_t number, const RobotOptions& options,
                            std::vector<std::string>* warnings = nullptr);

struct RenderOptions {
  int width = 128, height = 128;
  int samples = 2;      // rays per pixel and side, for colour
  double farthest = 2;  // metres; beyond it there is nothing but white
  bool shadows = true;
};
RgbdImage render_robot(const RobotEpisode& episode, int frame, int camera, const RenderOptions& options = {});

// Where the bodies 1..R of a robot are if its joints and grips have these values: positions [R, 3] and
// rotations [R, 4]. R is 16 with tools in the hands (sweep) and 20 with grippers.
struct RobotPose {
  std::vector<float> position, rotation;
};
RobotPose robot_forward(const float* joints /* [2, 7] */, const float* grips /* [2] */, int robot_bodies);

// --- Data sets
// -----------------------------------------------------------------------------------------------
// DIR/index.json, and one safetensors file for each episode.

struct RobotEntry {
  RobotTask task = RobotTask::sweep;
  std::int64_t number = 0;
  bool success = false;
  double measure = 0;
  std::string file;
};

struct RobotIndex {
  RobotOptions options;
  std::string simulator;            // simulator_version() of the episodes; empty where it was not written
  bool complete = false;            // false while a simulation is running, or after it was stopped
  std::vector<RobotEntry> entries;  // in the order of tasks and numbers
};

std::string format_robot_episode(const RobotEpisode& episode);  // the bytes of its file
// `name` is used in error messages only. Every size is checked against the bytes that are there.
RobotEpisode parse_robot_episode(std::string_view content, const std::string& name);
RobotEpisode read_robot_episode(const std::string& path);

// Throws one sentence if the folder holds no finished data set.
RobotIndex read_robot_index(const std::string& folder);

struct RobotTaskSummary {
  RobotTask task = RobotTask::sweep;
  std::int64_t episodes = 0, succeeded = 0;
  std::int64_t simulated = 0;  // by this call; the others were there
  double measure_mean = 0;
  double seconds = 0;  // of processor time, for those simulated here
};
// Called after each episode, on the calling thread or another but never twice at once.
using RobotProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Simulates the episodes 0..count-1 of each task into a folder, on all threads. Episodes that are there are
// kept: a stopped simulation resumes, and a larger `count` or other tasks extend the data set. The seed,
// frames, cameras and size must be those of the folder, and so must the simulator where episodes are missing.
// What the simulator warns of is passed on with TORCH_WARN.
std::vector<RobotTaskSummary> simulate_robot_folder(const std::string& folder,
                                                    const std::vector<RobotTask>& tasks, std::int64_t count,
                                                    const RobotOptions& options,
                                                    const RobotProgress& progress = {});

}  // namespace topomask
