// Points that move with the robot and the other bodies of its scene: the kinematic particles of a particle
// model (paper, App. C.3), and the true motion of the points that a camera sees.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "topomask/rgbd_data.h"

namespace topomask {

// K points on the surface of both arms and their tools, half of them on each; small parts have more than
// their share of the area. The same for every episode with the same shapes.
struct RobotSurface {
  at::Tensor body;   // [K] int64: 1 to R
  at::Tensor local;  // [K, 3] float32, in the frame of the body
  at::Tensor arm;    // [K] int64: 0 left, 1 right
};
RobotSurface sample_robot_surface(const RobotEpisode& episode, std::int64_t points_per_arm);

// Where these points are in all T frames, and the grip of their arm.
struct RobotPoints {
  at::Tensor measured, commanded;   // [T, K, 3] float32
  at::Tensor grip, grip_commanded;  // [T, K] float32
};
RobotPoints robot_points(const RobotTensors& states, const RobotSurface& surface);

// Where points [P, 3] on shapes [P] (numbers of shapes, as in RgbdMoment::segments) at frame `from` are at
// frame `to`: each moves with its body.
at::Tensor carry_points(const RobotTensors& states, const at::Tensor& points, const at::Tensor& shapes,
                        std::int64_t from, std::int64_t to);

}  // namespace topomask
