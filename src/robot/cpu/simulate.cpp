// An episode with MuJoCo: a scene, a plan for both arms that is followed without looking, and what came of
// it.
#include <algorithm>
#include <cstring>
#include <string>

#include "core/check.h"
#include "core/random.h"
#include "robot/cpu/checks.h"
#include "robot/cpu/mujoco_library.h"
#include "robot/cpu/scene.h"

namespace topomask {
namespace {

using namespace robot;

constexpr int kMostAttempts = 100;
constexpr double kSettleSeconds = 1;  // objects come to rest before the first frame

struct Plan {
  Script script;
  std::vector<Command> commands;
  int attempts = 0;
};

// Draws plans until both hands reach all of theirs.
Plan draw_plan(RobotTask task, std::uint64_t seed, double seconds, int first_attempt) {
  for (int attempt = first_attempt; attempt < kMostAttempts; ++attempt) {
    Plan plan;
    plan.script = draw_script(task, derive_seed(seed, static_cast<std::uint64_t>(attempt)));
    plan.commands = plan_commands(task, plan.script, seconds);
    plan.attempts = attempt + 1;
    if (!plan.commands.empty()) return plan;
  }
  fail("simulate_robot: none of {} plans for {} can be reached", kMostAttempts, word_of(task));
}

class Simulation {
 public:
  Simulation(RobotTask task, const Plan& plan)
      : plan_(plan), model_(compile_scene(scene_mjcf(task, plan.script.sizes))), data_(make_data(*model_)) {
    for (std::size_t arm = 0; arm < kRobotArms; ++arm) {
      const std::string side = arm == 0 ? "left" : "right";
      for (std::size_t i = 0; i < kRobotJoints; ++i) {
        const std::string number = std::to_string(i + 1);
        motors_[arm][i] = id(mjOBJ_ACTUATOR, side + "_motor" + number);
        joints_[arm][i] = id(mjOBJ_JOINT, side + "_joint" + number);
      }
      for (int finger = 0; task != RobotTask::sweep && finger < kFingers; ++finger) {
        const std::string number = std::to_string(finger);
        grip_motors_[arm].push_back(id(mjOBJ_ACTUATOR, side + "_grip" + number));
        grip_joints_[arm].push_back(id(mjOBJ_JOINT, side + "_slide" + number));
      }
    }
    command(0);
    place_robot();
    place_objects();
    mujoco().forward(model_.get(), data_.get());
    for (int i = 0; i < static_cast<int>(std::lround(kSettleSeconds / kTimeStep)); ++i) step();
  }

  const mjModel& model() const { return *model_; }
  int robot_bodies() const { return kRobotArms * (kArmBodies + static_cast<int>(grip_joints_[0].size())); }

  void run_to_next_frame() {
    constexpr int kSteps = static_cast<int>(kRobotFrameSeconds / kTimeStep + .5);
    constexpr int kPerCommand = static_cast<int>(kControlSeconds / kTimeStep + .5);
    for (int i = 0; i < kSteps; ++i, ++steps_) {
      if (steps_ % kPerCommand == 0) command(static_cast<std::size_t>(steps_ / kPerCommand + 1));
      step();
    }
  }

  void record(RobotEpisode& episode) {
    mujoco().kinematics(model_.get(), data_.get());  // a step ends with new joints and old bodies
    const auto append = [](std::vector<float>& target, const mjtNum* from, std::ptrdiff_t count) {
      std::transform(from, from + count, std::back_inserter(target),
                     [](mjtNum x) { return static_cast<float>(x); });
    };
    append(episode.body_position, data_->xpos, 3 * model_->nbody);
    append(episode.body_rotation, data_->xquat, 4 * model_->nbody);
    for (std::size_t arm = 0; arm < kRobotArms; ++arm) {
      for (std::size_t i = 0; i < kRobotJoints; ++i) {
        append(episode.joint_position, &data_->qpos[model_->jnt_qposadr[joints_[arm][i]]], 1);
        append(episode.joint_velocity, &data_->qvel[model_->jnt_dofadr[joints_[arm][i]]], 1);
        append(episode.joint_command, &data_->ctrl[motors_[arm][i]], 1);
      }
      // Fingers close together; the mean of the two is the opening.
      double grip = 0, commanded = 0;
      for (std::size_t f = 0; f < grip_joints_[arm].size(); ++f) {
        grip += data_->qpos[model_->jnt_qposadr[grip_joints_[arm][f]]] / kFingers;
        commanded += data_->ctrl[grip_motors_[arm][f]] / kFingers;
      }
      episode.grip.push_back(static_cast<float>(grip));
      episode.grip_command.push_back(static_cast<float>(commanded));
    }
    const std::size_t frame = episode.grip.size() / kRobotArms - 1;
    const RobotPose commanded = robot_forward(&episode.joint_command[frame * kRobotArms * kRobotJoints],
                                              &episode.grip_command[frame * kRobotArms], robot_bodies());
    episode.commanded_position.insert(episode.commanded_position.end(), commanded.position.begin(),
                                      commanded.position.end());
    episode.commanded_rotation.insert(episode.commanded_rotation.end(), commanded.rotation.begin(),
                                      commanded.rotation.end());
  }

  // Whether the solver lost its way: MuJoCo then starts again from the beginning by itself.
  bool diverged() const {
    return data_->warning[mjWARN_BADQPOS].number + data_->warning[mjWARN_BADQVEL].number +
               data_->warning[mjWARN_BADQACC].number >
           0;
  }

 private:
  int id(mjtObj type, const std::string& name) const {
    const int found = mujoco().name2id(model_.get(), type, name.c_str());
    check(found >= 0, "simulate_robot: the scene has no '{}'", name);
    return found;
  }
  void step() { mujoco().step(model_.get(), data_.get()); }

  void command(std::size_t row) {
    const Command& now = plan_.commands[std::min(row, plan_.commands.size() - 1)];
    for (std::size_t arm = 0; arm < kRobotArms; ++arm) {
      for (std::size_t i = 0; i < kRobotJoints; ++i) data_->ctrl[motors_[arm][i]] = now.joints[arm][i];
      for (const int motor : grip_motors_[arm]) data_->ctrl[motor] = now.grips[arm];
    }
  }

  void place_robot() {  // where the first command wants it
    for (std::size_t arm = 0; arm < kRobotArms; ++arm) {
      for (std::size_t i = 0; i < kRobotJoints; ++i)
        data_->qpos[model_->jnt_qposadr[joints_[arm][i]]] = data_->ctrl[motors_[arm][i]];
      for (std::size_t f = 0; f < grip_joints_[arm].size(); ++f)
        data_->qpos[model_->jnt_qposadr[grip_joints_[arm][f]]] = data_->ctrl[grip_motors_[arm][f]];
    }
  }

  void place_objects() {
    std::size_t next = 0;
    for (int joint = 0; joint < model_->njnt; ++joint) {
      if (model_->jnt_type[joint] != mjJNT_FREE) continue;
      const Place& place = plan_.script.objects.at(next++);
      const std::array<mjtNum, 7> pose{
          place.at.x, place.at.y, place.at.z, std::cos(place.yaw / 2), 0, 0, std::sin(place.yaw / 2)};
      std::copy(pose.begin(), pose.end(), data_->qpos + model_->jnt_qposadr[joint]);
    }
  }

  const Plan& plan_;
  ModelPtr model_;
  DataPtr data_;
  std::array<std::array<int, kRobotJoints>, kRobotArms> motors_{}, joints_{};
  std::array<std::vector<int>, kRobotArms> grip_motors_, grip_joints_;
  int steps_ = 0;
};

ShapeKind kind_of(int type) {
  switch (type) {
    case mjGEOM_SPHERE:
      return ShapeKind::sphere;
    case mjGEOM_CAPSULE:
      return ShapeKind::capsule;
    case mjGEOM_CYLINDER:
      return ShapeKind::cylinder;
    default:
      check(type == mjGEOM_BOX, "simulate_robot: the scene has a shape of MuJoCo's type {}", type);
      return ShapeKind::box;
  }
}

std::vector<RobotShape> shapes_of(const mjModel& model) {
  std::vector<RobotShape> shapes;
  for (int g = 0; g < model.ngeom; ++g) {
    if (model.geom_type[g] == mjGEOM_PLANE) continue;  // the floor stops what falls; it is out of sight
    RobotShape shape;
    const std::string name = model.names + model.name_geomadr[g];
    shape.kind = kind_of(model.geom_type[g]);
    shape.part = part_named(name);
    shape.pattern = pattern_named(name);
    shape.body = model.geom_bodyid[g];
    const auto copy = [](const auto* from, auto& target) {
      std::transform(from, from + target.size(), target.begin(),
                     [](auto x) { return static_cast<float>(x); });
    };
    copy(model.geom_size + 3 * g, shape.size);
    copy(model.geom_pos + 3 * g, shape.position);
    copy(model.geom_quat + 4 * g, shape.rotation);
    copy(model.geom_rgba + 4 * g, shape.colour);
    shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace

std::string why_no_simulator() {
  return mujoco_problem();
}

RobotEpisode simulate_robot(RobotTask task, std::int64_t number, const RobotOptions& options,
                            std::vector<std::string>* warnings) {
  check_robot_options(options);
  check(number >= 0, "simulate_robot: number must be at least 0, got {}", number);
  mujoco();  // throws where it is missing
  const std::uint64_t seed = derive_seed(derive_seed(options.seed, static_cast<std::uint64_t>(task)),
                                         static_cast<std::uint64_t>(number));
  const double seconds = (options.frames - 1) * kRobotFrameSeconds;
  for (int attempts = 0;;) {
    const Plan plan = draw_plan(task, seed, seconds, attempts);
    attempts = plan.attempts;
    take_warnings();  // those of a plan that was given up
    Simulation simulation(task, plan);
    RobotEpisode episode;
    episode.task = task;
    episode.number = number;
    episode.seed = options.seed;
    episode.attempts = attempts;
    episode.frames = options.frames;
    episode.bodies = static_cast<int>(simulation.model().nbody);
    episode.robot_bodies = simulation.robot_bodies();
    episode.shapes = shapes_of(simulation.model());
    episode.cameras = make_cameras(options.cameras);
    simulation.record(episode);
    for (int frame = 1; frame < options.frames && !simulation.diverged(); ++frame) {
      simulation.run_to_next_frame();
      simulation.record(episode);
    }
    if (simulation.diverged()) continue;
    if (warnings != nullptr) *warnings = take_warnings();
    const RobotVerdict verdict = judge_robot(episode);
    episode.success = verdict.success;
    episode.measure = verdict.measure;
    return episode;
  }
}

}  // namespace topomask
