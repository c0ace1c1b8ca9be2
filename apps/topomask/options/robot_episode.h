// Which episode of a folder a command means, by its place in the index or by its name, and what to say of it.
#pragma once

#include <string>

#include "topomask/robot.h"

namespace topomask::cli {

// "3", or "sweep-000003".
const RobotEntry& find_robot_entry(const RobotIndex& index, const std::string& episode);
std::string robot_entry_name(const RobotEntry& entry);               // "sweep-000003"
std::string describe_robot_measure(RobotTask task, double measure);  // "can fell 12 cm"
void check_frame_size(int size);                                     // --size of rendered frames
RobotEpisode read_robot_entry(const std::string& folder, const RobotEntry& entry);

}  // namespace topomask::cli
