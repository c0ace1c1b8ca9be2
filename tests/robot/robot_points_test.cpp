#include "topomask/robot_points.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "stored.h"
#include "support/expect_error.h"

namespace topomask {
namespace {

using testing::kStates;
using testing::stored_episode;

TEST(RobotPoints, LieOnBothArms) {
  for (const RobotTask task : testing::kTasks) {
    const RobotEpisode& episode = stored_episode(task);
    const RobotSurface surface = sample_robot_surface(episode, 64);
    ASSERT_EQ(surface.body.size(0), 128);
    EXPECT_EQ((surface.arm == 0).sum().item<std::int64_t>(), 64);
    const std::int64_t half = episode.robot_bodies / 2;
    EXPECT_TRUE((((surface.body - 1).floor_divide(half)) == surface.arm).all().item<bool>());
    // The last link and the tool or fingers beyond it move most: they must have points.
    EXPECT_GT((surface.body == half).sum().item<std::int64_t>(), 0);
  }
}

// Every point is on the surface of a shape of its body: the signed distance to one of them is 0.
TEST(RobotPoints, LieOnShapes) {
  const RobotEpisode& episode = stored_episode(RobotTask::sweep);
  const RobotSurface surface = sample_robot_surface(episode, 32);
  for (std::int64_t i = 0; i < surface.body.size(0); ++i) {
    double nearest = 1;
    for (const RobotShape& shape : episode.shapes) {
      if (shape.body != surface.body[i].item<std::int64_t>()) continue;
      // Into the frame of the shape: by the inverse of its quaternion.
      const double w = shape.rotation[0];
      std::array<double, 3> a{-shape.rotation[1], -shape.rotation[2], -shape.rotation[3]}, p{}, t{};
      for (std::size_t k = 0; k < 3; ++k)
        p[k] = surface.local[i][static_cast<std::int64_t>(k)].item<double>() - shape.position[k];
      for (std::size_t k = 0; k < 3; ++k)
        t[k] = 2 * (a[(k + 1) % 3] * p[(k + 2) % 3] - a[(k + 2) % 3] * p[(k + 1) % 3]);
      std::array<double, 3> q{};
      for (std::size_t k = 0; k < 3; ++k)
        q[k] = p[k] + w * t[k] + a[(k + 1) % 3] * t[(k + 2) % 3] - a[(k + 2) % 3] * t[(k + 1) % 3];
      const double radial = std::hypot(q[0], q[1]), r = shape.size[0], h = shape.size[1];
      double distance = 1;
      switch (shape.kind) {
        case ShapeKind::sphere:
          distance = std::hypot(radial, q[2]) - r;
          break;
        case ShapeKind::capsule:
          distance = std::hypot(radial, std::max(std::abs(q[2]) - h, 0.0)) - r;
          break;
        case ShapeKind::cylinder:
          distance = std::max(radial - r, std::abs(q[2]) - h);
          break;
        case ShapeKind::box:
          distance = std::max({std::abs(q[0]) - shape.size[0], std::abs(q[1]) - shape.size[1],
                               std::abs(q[2]) - shape.size[2]});
          break;
      }
      nearest = std::min(nearest, std::abs(distance));
    }
    EXPECT_LT(nearest, 1e-5) << "point " << i;
  }
}

TEST(RobotPoints, CommandedOnesFollowFromForwardKinematics) {
  const auto data = open_rgbd(kStates);
  const RobotEpisode& episode = *data->robot(1);
  const RobotTensors states = data->robot_tensors(1);
  const RobotSurface surface = sample_robot_surface(episode, 8);
  const RobotPoints points = robot_points(states, surface);
  ASSERT_EQ(points.measured.sizes(), (std::vector<std::int64_t>{episode.frames, 16, 3}));
  // The commanded poses come from joint commands; measured ones follow them within centimetres.
  const RobotPose pose =
      robot_forward(&episode.joint_command[5 * 14], &episode.grip_command[5 * 2], episode.robot_bodies);
  const std::int64_t body = surface.body[3].item<std::int64_t>() - 1;
  for (std::int64_t axis = 0; axis < 3; ++axis)
    EXPECT_NEAR(states.commanded_position[5][body][axis].item<float>(),
                pose.position[static_cast<std::size_t>(3 * body + axis)], 1e-5);
  EXPECT_LT((points.measured - points.commanded).norm(2, {-1}).mean().item<double>(), .03);
  EXPECT_TRUE(points.grip[7][0].equal(states.grip[7][0]));
}

// What a pixel shows stays on its shape: carried points lie where a camera sees the same shape.
TEST(RobotPoints, CarriedPointsMoveRigidly) {
  const auto data = open_rgbd(kStates);
  const RobotTensors states = data->robot_tensors(0);
  const at::Tensor points = at::rand({40, 3}), shapes = at::arange(40) % states.shape_body.size(0);
  const at::Tensor there = carry_points(states, points, shapes, 3, 11);
  EXPECT_TRUE(at::allclose(carry_points(states, there, shapes, 11, 3), points, 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(carry_points(states, points, shapes, 4, 4), points, 1e-4, 1e-5));
  // Two points of one body keep their distance.
  const at::Tensor pair = at::rand({2, 3}), one = at::full({2}, states.shape_body.size(0) - 1);
  const at::Tensor moved = carry_points(states, pair, one, 0, 20);
  EXPECT_NEAR((moved[0] - moved[1]).norm().item<double>(), (pair[0] - pair[1]).norm().item<double>(), 1e-5);
  testing::expect_error([&] { carry_points(states, points, shapes, 0, 24); }, "0 to 23, got 0 and 24");
}

}  // namespace
}  // namespace topomask
