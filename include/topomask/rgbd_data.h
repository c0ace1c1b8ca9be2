// RGB-D sequences as tensors, simulated (robot.h) or recorded (rgbd.h), by episode and frame: the input for
// training particle models (paper, section 4 "point clouds" and appendix C).
//
//   const auto data = open_rgbd("robot");
//   const RgbdMoment now = data->moment(episode, frame);       // what the cameras see
//   const RobotTensors robot = data->robot_tensors(episode);   // joints, actions, true poses of all frames
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "topomask/robot.h"

namespace topomask {

// One moment seen by C cameras; rgbd.h says what the numbers mean.
struct RgbdMoment {
  at::Tensor colour;      // [C, H, W, 3] uint8
  at::Tensor depth;       // [C, H, W] float32, metres along the optical axis; 0: unknown
  at::Tensor intrinsics;  // [C, 4] float32: fx, fy, cx, cy
  at::Tensor poses;       // [C, 4, 4] float32, camera to world
  at::Tensor segments;    // [C, H, W] int16: the shape seen, -1: none; undefined for recorded data
};

// The states of a simulated episode: T frames, B bodies, R of them the robot's, S shapes.
struct RobotTensors {
  at::Tensor body_position, body_rotation;            // [T, B, 3], [T, B, 4] quaternions w x y z
  at::Tensor commanded_position, commanded_rotation;  // [T, R, 3], [T, R, 4] of bodies 1..R
  at::Tensor joint_position, joint_velocity;          // [T, 2, 7]
  at::Tensor joint_command;                           // [T, 2, 7], the actions
  at::Tensor grip, grip_command;                      // [T, 2]
  at::Tensor shape_body, shape_part;                  // [S] int64: body and ScenePart of a shape
};

struct RgbdOptions {
  // Pixels of a rendered frame, both ways; 0: as the data set says. Recorded frames keep their size.
  int size = 0;
  int samples = 2;     // rays per pixel and side, for colour
  bool cache = false;  // keep rendered frames in memory; refused where all of them would not fit
};

struct RgbdPlace {
  std::int64_t episode = 0, frame = 0;
};

class RgbdData {
 public:
  virtual ~RgbdData() = default;

  virtual std::int64_t episodes() const = 0;
  virtual std::int64_t frames(std::int64_t episode) const = 0;
  virtual std::int64_t cameras() const = 0;
  virtual int size() const = 0;  // pixels of a rendered frame, both ways; 0: recorded frames keep their own
  virtual std::string name(std::int64_t episode) const = 0;  // "sweep-000012"; the folder's for recorded data
  // The states of a simulated episode; null for recorded data. Valid as long as the data.
  virtual const RobotEpisode* robot(std::int64_t episode) const = 0;

  RgbdMoment moment(std::int64_t episode, std::int64_t frame) const;
  // All of them, read or rendered by all threads; the same as one by one.
  std::vector<RgbdMoment> moments(const std::vector<RgbdPlace>& places) const;
  // Throws for recorded data.
  RobotTensors robot_tensors(std::int64_t episode) const;

 protected:
  virtual RgbdImage image(std::int64_t episode, std::int64_t frame, std::int64_t camera) const = 0;
  void check_place(std::int64_t episode, std::int64_t frame) const;
};

// A folder of `topomask simulate robot` or one in the layout of 7-Scenes. Reads what is small (states, names
// of frames) at once and frames when they are asked for.
std::unique_ptr<RgbdData> open_rgbd(const std::string& folder, const RgbdOptions& options = {});

}  // namespace topomask
