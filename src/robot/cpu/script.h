// What happens in an episode: where objects begin, and where both hands go. A function of seed, task and
// number.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "robot/cpu/arm.h"

namespace topomask::robot {

inline constexpr int kGrains = 60;
inline constexpr double kGrainRadius = .009;

struct Sizes {  // of the objects, in metres
  double can_radius = .033, can_half_height = .055, block_half = .032;
};

// An object that begins upright.
struct Place {
  Vec at;
  double yaw = 0;
};

struct Waypoint {
  double time = 0;
  HandPose pose;
};

// Waypoints of one hand and the way between them.
class HandPlan {
 public:
  void begin(const HandPose& pose);
  // Reaches the pose after `seconds`, or later where the hand would move so fast that particles could not
  // follow.
  void move(const HandPose& pose, double seconds);
  void wait(double seconds);
  void wait_until(double time);

  double time() const { return waypoints_.back().time; }
  const HandPose& last() const { return waypoints_.back().pose; }
  // With minimum jerk from waypoint to waypoint.
  HandPose at(double time) const;

 private:
  std::vector<Waypoint> waypoints_;
};

struct Script {
  Sizes sizes;
  std::vector<Place> objects;  // grains (sweep), else can, block, carton
  std::array<HandPlan, kRobotArms> hands;
};
Script draw_script(RobotTask task, std::uint64_t seed);

// Joints and grips of both arms every kControlSeconds, from `seconds` = 0 to its end.
inline constexpr double kControlSeconds = .02;
struct Command {
  std::array<Joints, kRobotArms> joints;
  std::array<double, kRobotArms> grips;
};
// Empty if a hand cannot reach one of its poses, or if the arms would touch.
std::vector<Command> plan_commands(RobotTask task, const Script& script, double seconds);

}  // namespace topomask::robot
