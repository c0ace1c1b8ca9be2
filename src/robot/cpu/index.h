// index.json of a folder of episodes.
#pragma once

#include <string>
#include <string_view>

#include "topomask/robot.h"

namespace topomask::robot {

inline constexpr std::string_view kRobotIndexFile = "index.json";

std::string episode_file(RobotTask task, std::int64_t number);  // "sweep-000012.safetensors"

std::string format_robot_index(const RobotIndex& index);
// A data set that is not complete, too.
RobotIndex parse_robot_index(std::string_view content, const std::string& name);

}  // namespace topomask::robot
