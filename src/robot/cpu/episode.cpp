// What all parts of the robot share: names, checks, and the verdict on an episode.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/units.h"
#include "robot/cpu/arm.h"
#include "robot/cpu/checks.h"

namespace topomask {
namespace robot {

void check_robot_options(const RobotOptions& options) {
  check(options.frames >= 2 && options.frames <= kMostFrames, "robot: frames must be 2 to {}, got {}",
        kMostFrames, options.frames);
  check(options.cameras >= 1 && options.cameras <= kMostCameras, "robot: cameras must be 1 to {}, got {}",
        kMostCameras, options.cameras);
  check(options.size >= kLeastPixels && options.size <= kMostPixels, "robot: size must be {} to {}, got {}",
        kLeastPixels, kMostPixels, options.size);
}

void check_frame_cache(std::int64_t frames, int size, std::uint64_t available) {
  constexpr double kBytesPerPixel = 3 + 4 + 2;  // colour, depth, segment
  const double bytes = static_cast<double>(frames) * size * size * kBytesPerPixel;
  check(bytes <= static_cast<double>(available),
        "keeping {} rendered frames of {} x {} pixels takes {} of memory, but {} are free; use --no-cache, a "
        "smaller --size or fewer episodes",
        frames, size, size, format_bytes(bytes), format_bytes(static_cast<double>(available)));
}

namespace {

// Metres, radians: far above everything on a table, and small enough for any arithmetic.
constexpr float kLargest = 1000;

bool can_be(float x) {
  return std::abs(x) <= kLargest;  // NaN is not
}

template <class Numbers>
bool all_can_be(const Numbers& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), can_be);
}

}  // namespace

void check_robot_episode(const RobotEpisode& episode, const std::string& name) {
  const auto frames = static_cast<std::size_t>(episode.frames),
             bodies = static_cast<std::size_t>(episode.bodies),
             robots = static_cast<std::size_t>(episode.robot_bodies);
  check(episode.frames >= 1 && episode.bodies >= 1 && episode.robot_bodies >= 0 &&
            episode.robot_bodies < episode.bodies,
        "{}: {} frames of {} bodies, {} of them the robot's, are no episode", name, episode.frames,
        episode.bodies, episode.robot_bodies);
  check(std::isfinite(episode.measure), "{}: the measure is not a finite number", name);
  const auto values = [&](const std::vector<float>& array, std::size_t size, const char* what) {
    check(array.size() == size, "{}: expected {} numbers as {}, got {}", name, size, what, array.size());
    check(std::all_of(array.begin(), array.end(), can_be),
          "{}: {} holds a number that is not finite, or above {}", name, what, kLargest);
  };
  values(episode.body_position, frames * bodies * 3, "body.position");
  values(episode.body_rotation, frames * bodies * 4, "body.rotation");
  values(episode.commanded_position, frames * robots * 3, "commanded.position");
  values(episode.commanded_rotation, frames * robots * 4, "commanded.rotation");
  for (const auto& [array, what] : {std::pair{&episode.joint_position, "joint.position"},
                                    std::pair{&episode.joint_velocity, "joint.velocity"},
                                    std::pair{&episode.joint_command, "joint.command"}})
    values(*array, frames * kRobotArms * kRobotJoints, what);
  values(episode.grip, frames * kRobotArms, "grip.position");
  values(episode.grip_command, frames * kRobotArms, "grip.command");
  const auto is_turn = [](const float* q) {
    const float square = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3];
    return std::abs(square - 1) < .01f;
  };
  for (std::size_t i = 0; i < episode.body_rotation.size(); i += 4)
    check(is_turn(&episode.body_rotation[i]), "{}: body.rotation holds a quaternion whose length is not 1",
          name);

  check(!episode.shapes.empty() && episode.shapes.size() <= 32767, "{}: expected 1 to 32767 shapes, got {}",
        name, episode.shapes.size());
  for (const RobotShape& shape : episode.shapes) {
    check(shape.kind <= ShapeKind::box && shape.part <= ScenePart::grain &&
              shape.pattern <= SurfacePattern::edges,
          "{}: a shape is of an unknown kind ({}), part ({}) or pattern ({})", name,
          static_cast<int>(shape.kind), static_cast<int>(shape.part), static_cast<int>(shape.pattern));
    check(shape.body >= 0 && shape.body < episode.bodies, "{}: a shape belongs to body {} of {}", name,
          shape.body, episode.bodies);
    const bool sizes =
        all_can_be(shape.size) && shape.size[0] > 0 && shape.size[1] >= 0 && shape.size[2] >= 0;
    check(sizes && all_can_be(shape.position) && all_can_be(shape.rotation) && all_can_be(shape.colour) &&
              is_turn(shape.rotation.data()),
          "{}: a shape has sizes, a pose or a colour that cannot be", name);
  }
  check(!episode.cameras.empty() && episode.cameras.size() <= kMostCameras,
        "{}: expected 1 to {} cameras, got {}", name, kMostCameras, episode.cameras.size());
  for (const RobotCamera& camera : episode.cameras) {
    const bool turned = std::all_of(camera.rotation.begin(), camera.rotation.end(),
                                    [](float x) { return std::abs(x) <= 1.01f; });
    check(turned && all_can_be(camera.position) && camera.field_of_view > .01f && camera.field_of_view < 3,
          "{}: a camera has a pose or a field of view that cannot be", name);
  }
}

namespace {

// The body of the first shape of a part, or -1.
int body_of(const RobotEpisode& episode, ScenePart part) {
  for (const RobotShape& shape : episode.shapes) {
    if (shape.part == part) return shape.body;
  }
  return -1;
}

Vec position_of(const RobotEpisode& episode, int frame, int body) {
  const float* p =
      &episode.body_position[3 * (static_cast<std::size_t>(frame) * static_cast<std::size_t>(episode.bodies) +
                                  static_cast<std::size_t>(body))];
  return {p[0], p[1], p[2]};
}

RobotVerdict judge_sweep(const RobotEpisode& episode) {
  // In the frame of the hand that holds the pan: above the plate and between its walls.
  constexpr double kFront = .165, kBack = .015, kSide = .09, kDeep = .137, kHigh = .08;
  const int pan = body_of(episode, ScenePart::pan), last = episode.frames - 1;
  check(pan >= 0, "judge_robot: the episode shows no pan");
  const std::size_t row = static_cast<std::size_t>(last) * static_cast<std::size_t>(episode.bodies);
  const float* q = &episode.body_rotation[4 * (row + static_cast<std::size_t>(pan))];
  const double turn[4] = {q[0], q[1], q[2], q[3]};
  const Rot rotation = rotation_of(turn);
  int grains = 0, inside = 0;
  for (const RobotShape& shape : episode.shapes) {
    if (shape.part != ScenePart::grain) continue;
    const Vec p =
        rotation.turn_back(position_of(episode, last, shape.body) - position_of(episode, last, pan));
    ++grains;
    inside += p.x > kBack && p.x < kFront && std::abs(p.y) < kSide && p.z < kDeep && p.z > kHigh;
  }
  check(grains > 0, "judge_robot: the episode shows no grains");
  const double share = static_cast<double>(inside) / grains;
  return {share >= .4, share};
}

}  // namespace
}  // namespace robot

template <>
std::span<const Word<RobotTask>> words<RobotTask>() {
  static constexpr Word<RobotTask> kTable[] = {
      {RobotTask::sweep, "sweep", "one hand sweeps 60 grains into the pan that the other holds"},
      {RobotTask::lift_can, "lift-can", "a hand grasps a can, lifts and turns it"},
      {RobotTask::move_block, "move-block", "a hand carries or pushes a block elsewhere"},
      {RobotTask::drop_can, "drop-can", "a hand lifts a can and lets it fall"},
  };
  return kTable;
}

RobotVerdict judge_robot(const RobotEpisode& episode) {
  using namespace robot;
  constexpr double kRise = .06, kWay = .05, kOnTable = .02, kFallen = -.05;
  if (episode.task == RobotTask::sweep) return judge_sweep(episode);
  const int body =
      body_of(episode, episode.task == RobotTask::move_block ? ScenePart::block : ScenePart::can);
  check(body >= 0, "judge_robot: the episode does not show the object of {}", word_of(episode.task));
  const Vec first = position_of(episode, 0, body), last = position_of(episode, episode.frames - 1, body);
  const double rise = last.z - first.z;
  switch (episode.task) {
    case RobotTask::lift_can:
      return {rise > kRise, rise};
    case RobotTask::move_block: {
      const double way = std::hypot(last.x - first.x, last.y - first.y);
      return {way > kWay && std::abs(rise) < kOnTable, way};
    }
    default: {
      double highest = 0;
      for (int frame = 0; frame < episode.frames; ++frame)
        highest = std::max(highest, position_of(episode, frame, body).z - first.z);
      return {highest > kRise && rise < kOnTable && last.z > kFallen, highest};
    }
  }
}

}  // namespace topomask
