#include "robot/cpu/mujoco_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <mutex>
#include <string_view>
#include <utility>

#include "core/check.h"

namespace topomask::robot {
namespace {

thread_local std::vector<std::string> warnings;  // of this thread, since they were last taken

// Without it MuJoCo would write to MUJOCO_LOG.TXT in the current folder and, after an error, end the process.
// Its functions are C, but compiled with unwind tables, so an exception passes through them.
void receive_message(const mjLogMessage* message) {
  const std::string_view text = message->subject, line = text.substr(0, text.find('\n'));
  if (message->level == mjLOG_ERROR) fail("MuJoCo: {}", line);
  // Those of one kind are one, whenever they happen.
  if (message->level == mjLOG_WARNING) warnings.emplace_back(line.substr(0, line.find(" Time = ")));
}

struct Opened {
  MujocoLibrary functions{};
  std::string problem;
};

Opened open_library() {
  Opened opened;
  constexpr std::string_view kPath = TOPOMASK_MUJOCO_LIBRARY;
  // Where it was at build time, or wherever the system looks for libraries.
  void* handle = dlopen(kPath.data(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) handle = dlopen(kPath.substr(kPath.rfind('/') + 1).data(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    opened.problem =
        fmt::format("simulating needs MuJoCo {}, but its library cannot be opened: expected '{}'",
                    TOPOMASK_MUJOCO_VERSION, kPath);
    return opened;
  }
  const auto find = [&](auto& function, const char* name) {
    void* address = dlsym(handle, name);
    if (address == nullptr && opened.problem.empty())
      opened.problem = fmt::format("simulating needs MuJoCo {}, but '{}' has no function {}",
                                   TOPOMASK_MUJOCO_VERSION, kPath, name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  MujocoLibrary& f = opened.functions;
  find(f.version, "mj_version");
  find(f.parse_xml, "mj_parseXMLString");
  find(f.compile, "mj_compile");
  find(f.compile_error, "mjs_getError");
  find(f.delete_spec, "mj_deleteSpec");
  find(f.make_data, "mj_makeData");
  find(f.delete_data, "mj_deleteData");
  find(f.delete_model, "mj_deleteModel");
  find(f.name2id, "mj_name2id");
  find(f.forward, "mj_forward");
  find(f.kinematics, "mj_kinematics");
  find(f.step, "mj_step");
  decltype(&::mju_setLogHandler) set_log_handler = nullptr;
  find(set_log_handler, "mju_setLogHandler");
  if (opened.problem.empty() && f.version() != mjVERSION_HEADER) {
    opened.problem =
        fmt::format("simulating needs MuJoCo {}, but the library '{}' has version number {} in place of {}",
                    TOPOMASK_MUJOCO_VERSION, kPath, f.version(), mjVERSION_HEADER);
  }
  if (opened.problem.empty()) set_log_handler(receive_message);
  return opened;
}

const Opened& library() {
  static const Opened opened = open_library();
  return opened;
}

}  // namespace

const std::string& mujoco_problem() {
  return library().problem;
}

const MujocoLibrary& mujoco() {
  check(library().problem.empty(), "{}", library().problem);
  return library().functions;
}

std::vector<std::string> take_warnings() {
  return std::exchange(warnings, {});
}

ModelPtr compile_scene(const std::string& mjcf) {
  const MujocoLibrary& mj = mujoco();
  static std::mutex one_at_a_time;  // nothing says that its parser may be used by several threads
  const std::lock_guard lock(one_at_a_time);
  char error[1000] = "";
  const std::unique_ptr<mjSpec, void (*)(mjSpec*)> spec(
      mj.parse_xml(mjcf.c_str(), nullptr, error, sizeof error), mj.delete_spec);
  check(spec != nullptr, "MuJoCo cannot read the robot's scene: {}", error);
  ModelPtr model(mj.compile(spec.get(), nullptr), mj.delete_model);
  check(model != nullptr, "MuJoCo cannot compile the robot's scene: {}", mj.compile_error(spec.get()));
  return model;
}

DataPtr make_data(const mjModel& model) {
  DataPtr data(mujoco().make_data(&model), mujoco().delete_data);
  check(data != nullptr, "MuJoCo has no memory for the robot's scene");
  return data;
}

}  // namespace topomask::robot
