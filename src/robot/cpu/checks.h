// What is asked of settings and episodes before they are used.
#pragma once

#include <string>

#include "topomask/robot.h"

namespace topomask::robot {

inline constexpr int kMostFrames = 1000, kMostCameras = 8, kLeastPixels = 8, kMostPixels = 4096;

void check_robot_options(const RobotOptions& options);
// Whether so many frames of size x size pixels can be kept in `available` bytes of memory.
void check_frame_cache(std::int64_t frames, int size, std::uint64_t available);
// Sizes, indices, finite numbers; `name` begins the message.
void check_robot_episode(const RobotEpisode& episode, const std::string& name);

}  // namespace topomask::robot
