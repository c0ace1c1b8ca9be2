// MuJoCo's functions, from the shared library inside its Python wheel. It is opened when an episode is
// simulated for the first time, so that nothing else needs it: the program starts, renders and trains
// without.
#pragma once

#include <mujoco/mujoco.h>

#include <memory>
#include <string>
#include <vector>

namespace topomask::robot {

struct MujocoLibrary {
  decltype(&::mj_version) version;
  decltype(&::mj_parseXMLString) parse_xml;
  decltype(&::mj_compile) compile;
  decltype(&::mjs_getError) compile_error;
  decltype(&::mj_deleteSpec) delete_spec;
  decltype(&::mj_makeData) make_data;
  decltype(&::mj_deleteData) delete_data;
  decltype(&::mj_deleteModel) delete_model;
  decltype(&::mj_name2id) name2id;
  decltype(&::mj_forward) forward;
  decltype(&::mj_kinematics) kinematics;
  decltype(&::mj_step) step;
};

// Empty where the library can be used; else one sentence.
const std::string& mujoco_problem();
// Throws that sentence where it cannot.
const MujocoLibrary& mujoco();

// What MuJoCo has warned of on this thread since the last call.
std::vector<std::string> take_warnings();

using ModelPtr = std::unique_ptr<mjModel, void (*)(mjModel*)>;
using DataPtr = std::unique_ptr<mjData, void (*)(mjData*)>;
ModelPtr compile_scene(const std::string& mjcf);
DataPtr make_data(const mjModel& model);

}  // namespace topomask::robot
