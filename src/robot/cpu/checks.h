// What is asked of settings and episodes before they are used.
#pragma once

#include <string>

#include "topomask/robot.h"

namespace topomask::robot {

inline constexpr int kMostFrames = 1000, kMostCameras = 8, kMostPixels = 4096;

void check_robot_options(const RobotOptions& options);
// Sizes, indices, finite numbers; `name` begins the message.
void check_robot_episode(const RobotEpisode& episode, const std::string& name);

}  // namespace topomask::robot
