// In place of simulate.cpp where MuJoCo's headers were not found.
#include "core/check.h"
#include "topomask/robot.h"

namespace topomask {

std::string why_no_simulator() {
  return "simulating needs MuJoCo, and this build was made without it: run scripts/setup.sh, which installs "
         "mujoco==" TOPOMASK_MUJOCO_VERSION ", and build again";
}

RobotEpisode simulate_robot(RobotTask, std::int64_t, const RobotOptions&, std::vector<std::string>*) {
  fail("{}", why_no_simulator());
}

}  // namespace topomask
