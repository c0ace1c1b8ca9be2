// The arms: their links, where joints put them, and joints that put the hand in a wanted place.
#pragma once

#include <array>
#include <vector>

#include "robot/cpu/vectors.h"
#include "topomask/robot.h"

namespace topomask::robot {

// Seven joints with the axes of a KUKA LBR iiwa (z y z -y z y z) at three quarters of its size. A link begins
// at its joint, `offset` above the one before, and is a capsule along z.
struct Link {
  double offset;
  Vec axis;
  double low, high;  // the joint's range
  double length, radius;
};
inline constexpr std::array<Link, kRobotJoints> kLinks{{
    {.11, {0, 0, 1}, -2.9, 2.9, .12, .050},
    {.13, {0, 1, 0}, -2.0, 2.0, .15, .048},
    {.16, {0, 0, 1}, -2.9, 2.9, .14, .044},
    {.15, {0, -1, 0}, -2.2, 2.2, .14, .042},
    {.15, {0, 0, 1}, -2.9, 2.9, .13, .038},
    {.14, {0, 1, 0}, -2.1, 2.1, .05, .036},
    {.06, {0, 0, 1}, -3.0, 3.0, .02, .032},
}};
inline constexpr std::array<Vec, kRobotArms> kBases{{{0, .27, 0}, {0, -.27, 0}}};
inline constexpr Vec kFingerRoot{0, 0, .05};  // in the frame of the last link; fingers slide along y
inline constexpr int kArmBodies = 1 + kRobotJoints, kFingers = 2;

// What a hand holds, and the point of it that is placed, in the frame of the last link.
enum class Tool { gripper, brush, pan };
constexpr Vec tool_point(Tool tool) {
  return tool == Tool::gripper ? Vec{0, 0, .105} : tool == Tool::brush ? Vec{0, 0, .148} : Vec{.09, 0, .1375};
}
constexpr Tool tool_of(RobotTask task, int arm) {
  return task != RobotTask::sweep ? Tool::gripper : arm == 0 ? Tool::brush : Tool::pan;
}

using Joints = std::array<double, kRobotJoints>;
inline constexpr Joints kHome{0, .55, 0, -1.45, 0, 1.15, 0};

// Base and links 1 to 7.
std::array<Pose<double>, kArmBodies> arm_bodies(int arm, const Joints& joints);

// Where a hand shall be. Without turns its z points down and its x away from the robot.
struct HandPose {
  Vec at;
  double yaw = 0;   // about the vertical
  double tilt = 0;  // about the hand's own y, then
  double roll = 0;  // about its own x: a can between two fingers swings about y, only roll inclines it
  double grip = .045;
};
Rot hand_rotation(const HandPose& pose);

// Moves joints towards a pose of the tool's point, by damped least squares; the null space pulls towards
// kHome, so that elbows stay above. Returns how far in metres the point then is from where it shall be.
double reach(int arm, Tool tool, const HandPose& pose, int iterations, Joints& joints);

// The least distance between the surfaces of two arms, from the second link to the hand.
double clearance(const Joints& left, const Joints& right);

}  // namespace topomask::robot
