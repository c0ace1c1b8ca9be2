// Episodes that our simulator made: topomask simulate robot --task all --episodes 1 --frames 24 --seed 0.
#pragma once

#include <string>

#include "robot/cpu/index.h"
#include "topomask/robot.h"

namespace topomask::testing {

inline const std::string kStates = TOPOMASK_ROBOT_STATES;

inline const RobotEpisode& stored_episode(RobotTask task) {
  static const auto read = [](RobotTask which) {
    return read_robot_episode(kStates + "/" + robot::episode_file(which, 0));
  };
  static const RobotEpisode sweep = read(RobotTask::sweep), lift = read(RobotTask::lift_can),
                            move = read(RobotTask::move_block), drop = read(RobotTask::drop_can);
  switch (task) {
    case RobotTask::sweep:
      return sweep;
    case RobotTask::lift_can:
      return lift;
    case RobotTask::move_block:
      return move;
    default:
      return drop;
  }
}

inline constexpr RobotTask kTasks[] = {RobotTask::sweep, RobotTask::lift_can, RobotTask::move_block,
                                       RobotTask::drop_can};

}  // namespace topomask::testing
