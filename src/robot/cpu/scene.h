// The scene of a task as MuJoCo's MJCF text, and what each of its shapes is.
#pragma once

#include <string>

#include "robot/cpu/script.h"

namespace topomask::robot {

inline constexpr double kTimeStep = .005;

std::string scene_mjcf(RobotTask task, const Sizes& sizes);

// By the names that the text gives: "left_link3", "grain7".
ScenePart part_named(const std::string& shape);
SurfacePattern pattern_named(const std::string& shape);

// Cameras on an arc in front of the table that look at the middle of the work space; two are at its ends.
std::vector<RobotCamera> make_cameras(int count);

}  // namespace topomask::robot
