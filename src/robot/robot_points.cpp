#include "topomask/robot_points.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/random.h"
#include "robot/cpu/vectors.h"

namespace topomask {
namespace {

constexpr double kPi = std::numbers::pi;

// Surface of the parts of a shape that are drawn from apart: side, then ends.
struct ShapeArea {
  double side = 0, ends = 0;
  double total() const { return side + ends; }
};

ShapeArea area_of(const RobotShape& shape) {
  const double a = shape.size[0], b = shape.size[1], c = shape.size[2];
  switch (shape.kind) {
    case ShapeKind::sphere:
      return {4 * kPi * a * a, 0};
    case ShapeKind::capsule:
      return {4 * kPi * a * b, 4 * kPi * a * a};
    case ShapeKind::cylinder:
      return {4 * kPi * a * b, 2 * kPi * a * a};
    default:
      return {8 * (a * b + b * c + a * c), 0};
  }
}

robot::Vec on_sphere(double radius, RandomStream& random) {
  const double z = 2 * random.next_double() - 1, angle = 2 * kPi * random.next_double();
  const double r = std::sqrt(1 - z * z);
  return {radius * r * std::cos(angle), radius * r * std::sin(angle), radius * z};
}

robot::Vec on_box(const std::array<float, 3>& half, RandomStream& random) {
  const double a = half[0], b = half[1], c = half[2], faces[3] = {b * c, a * c, a * b};
  double pick = random.next_double() * (faces[0] + faces[1] + faces[2]);
  int axis = 0;
  while (axis < 2 && pick >= faces[axis]) pick -= faces[axis++];
  double point[3];
  for (int i = 0; i < 3; ++i) point[i] = half[static_cast<std::size_t>(i)] * (2 * random.next_double() - 1);
  point[axis] =
      point[axis] < 0 ? -half[static_cast<std::size_t>(axis)] : half[static_cast<std::size_t>(axis)];
  return {point[0], point[1], point[2]};
}

// A point of the surface in the frame of the shape.
robot::Vec on_surface(const RobotShape& shape, RandomStream& random) {
  const double radius = shape.size[0], half = shape.size[1];
  if (shape.kind == ShapeKind::box) return on_box(shape.size, random);
  if (shape.kind == ShapeKind::sphere) return on_sphere(radius, random);
  const ShapeArea area = area_of(shape);
  if (random.next_double() * area.total() < area.side) {
    const double angle = 2 * kPi * random.next_double();
    return {radius * std::cos(angle), radius * std::sin(angle), half * (2 * random.next_double() - 1)};
  }
  robot::Vec point = on_sphere(radius, random);
  const double end = point.z < 0 ? -half : half;
  if (shape.kind == ShapeKind::capsule) return {point.x, point.y, point.z + end};
  const double distance = radius * std::sqrt(random.next_double()), angle = 2 * kPi * random.next_double();
  return {distance * std::cos(angle), distance * std::sin(angle), end};
}

// From the frame of a shape to that of its body.
robot::Vec in_body(const RobotShape& shape, robot::Vec v) {
  const double w = shape.rotation[0];
  const robot::Vec axis{shape.rotation[1], shape.rotation[2], shape.rotation[3]};
  const robot::Vec t = 2.0 * cross(axis, v);
  const robot::Vec offset{shape.position[0], shape.position[1], shape.position[2]};
  return v + w * t + cross(axis, t) + offset;
}

// v turned by unit quaternions w x y z, or back: [.., 4] and [.., 3].
at::Tensor turned(const at::Tensor& quaternions, const at::Tensor& v, bool back = false) {
  const at::Tensor w = quaternions.narrow(-1, 0, 1);
  at::Tensor axis = quaternions.narrow(-1, 1, 3);
  if (back) axis = -axis;
  const auto shape = at::infer_size(axis.sizes(), v.sizes());
  const at::Tensor a = axis.expand(shape), t = 2 * at::cross(a, v.expand(shape), -1);
  return v + w * t + at::cross(a, t, -1);
}

}  // namespace

RobotSurface sample_robot_surface(const RobotEpisode& episode, std::int64_t per_arm) {
  constexpr std::uint32_t kPurpose = 0x6b696e;  // of these random numbers alone
  check(per_arm >= 1, "sample_robot_surface: expected at least 1 point on each arm, got {}", per_arm);
  check(episode.robot_bodies >= kRobotArms,
        "sample_robot_surface: the episode has {} robot bodies, expected {} or more", episode.robot_bodies,
        kRobotArms);
  RandomStream random(0, kPurpose);
  const int bodies_per_arm = episode.robot_bodies / kRobotArms;
  std::vector<std::int64_t> body, arms;
  std::vector<float> local;
  for (int arm = 0; arm < kRobotArms; ++arm) {
    std::vector<const RobotShape*> shapes;
    std::vector<double> until;  // running sum of the shapes' weights
    double sum = 0;
    for (const RobotShape& shape : episode.shapes) {
      if (shape.body < 1 || shape.body > episode.robot_bodies || (shape.body - 1) / bodies_per_arm != arm)
        continue;
      shapes.push_back(&shape);
      until.push_back(sum += std::sqrt(area_of(shape).total()));
    }
    check(!shapes.empty(), "sample_robot_surface: the {} arm has no shapes", arm == 0 ? "left" : "right");
    std::size_t which = 0;
    for (std::int64_t i = 0; i < per_arm; ++i) {
      const double place = sum * (static_cast<double>(i) + .5) / static_cast<double>(per_arm);
      while (which + 1 < shapes.size() && until[which] <= place) ++which;
      const robot::Vec point = in_body(*shapes[which], on_surface(*shapes[which], random));
      body.push_back(shapes[which]->body);
      arms.push_back(arm);
      for (const double x : {point.x, point.y, point.z}) local.push_back(static_cast<float>(x));
    }
  }
  const auto count = static_cast<std::int64_t>(body.size());
  return {at::tensor(body), at::tensor(local).view({count, 3}), at::tensor(arms)};
}

RobotPoints robot_points(const RobotTensors& states, const RobotSurface& surface) {
  const auto placed = [&](const at::Tensor& positions, const at::Tensor& rotations,
                          const at::Tensor& bodies) {
    return positions.index_select(1, bodies) + turned(rotations.index_select(1, bodies), surface.local);
  };
  return {placed(states.body_position, states.body_rotation, surface.body),
          placed(states.commanded_position, states.commanded_rotation, surface.body - 1),
          states.grip.index_select(1, surface.arm), states.grip_command.index_select(1, surface.arm)};
}

at::Tensor carry_points(const RobotTensors& states, const at::Tensor& points, const at::Tensor& shapes,
                        std::int64_t from, std::int64_t to) {
  const std::int64_t frames = states.body_position.size(0);
  check(from >= 0 && from < frames && to >= 0 && to < frames,
        "carry_points: frames must be 0 to {}, got {} and {}", frames - 1, from, to);
  check(points.dim() == 2 && points.size(1) == 3 && shapes.dim() == 1 && shapes.size(0) == points.size(0),
        "carry_points: expected points [P, 3] and shapes [P], got [{}] and [{}]",
        fmt::join(points.sizes(), ", "), fmt::join(shapes.sizes(), ", "));
  const at::Tensor bodies = states.shape_body.index_select(0, shapes.to(at::kLong));
  const auto pose = [&](const at::Tensor& of_all, std::int64_t frame) {
    return of_all[frame].index_select(0, bodies);
  };
  const at::Tensor local =
      turned(pose(states.body_rotation, from), points - pose(states.body_position, from), /*back=*/true);
  return pose(states.body_position, to) + turned(pose(states.body_rotation, to), local);
}

}  // namespace topomask
