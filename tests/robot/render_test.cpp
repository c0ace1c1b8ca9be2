// Rendered frames against distances to the surfaces of the scene, computed another way: a ray is free until
// the depth that the frame says, and there it touches the shape that the frame says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "robot/cpu/vectors.h"
#include "stored.h"
#include "support/expect_error.h"

namespace topomask::testing {
namespace {

using namespace robot;

class Surfaces {
 public:
  Surfaces(const RobotEpisode& episode, int frame) : episode_(episode) {
    for (const RobotShape& shape : episode.shapes) {
      const std::size_t body = static_cast<std::size_t>(frame * episode.bodies + shape.body);
      const auto pose = [](const float* p, const float* q) {
        const double turn[4] = {q[0], q[1], q[2], q[3]};
        return Pose<double>{{p[0], p[1], p[2]}, rotation_of(turn)};
      };
      poses_.push_back(pose(&episode.body_position[3 * body], &episode.body_rotation[4 * body]) *
                       pose(shape.position.data(), shape.rotation.data()));
    }
  }

  // Negative inside.
  double distance(std::size_t s, Vec world) const {
    const RobotShape& shape = episode_.shapes[s];
    const Vec p = poses_[s].rotation.turn_back(world - poses_[s].position);
    const double a = shape.size[0], b = shape.size[1], c = shape.size[2];
    switch (shape.kind) {
      case ShapeKind::sphere:
        return length(p) - a;
      case ShapeKind::capsule:
        return length(Vec{p.x, p.y, p.z - std::clamp(p.z, -b, b)}) - a;
      case ShapeKind::cylinder: {
        const double x = std::hypot(p.x, p.y) - a, y = std::abs(p.z) - b;
        return std::min(std::max(x, y), 0.) + std::hypot(std::max(x, 0.), std::max(y, 0.));
      }
      default: {
        const Vec q{std::abs(p.x) - a, std::abs(p.y) - b, std::abs(p.z) - c};
        return std::min(std::max({q.x, q.y, q.z}), 0.) +
               length(Vec{std::max(q.x, 0.), std::max(q.y, 0.), std::max(q.z, 0.)});
      }
    }
  }
  double nearest(Vec world) const {
    double least = 1e9;
    for (std::size_t s = 0; s < poses_.size(); ++s) least = std::min(least, distance(s, world));
    return least;
  }

 private:
  const RobotEpisode& episode_;
  std::vector<Pose<double>> poses_;
};

struct Ray {
  Vec origin, direction;  // a length of 1 is a depth of 1
};
Ray ray_of(const RgbdImage& image, int row, int column) {
  const auto& k = image.intrinsics;
  const auto& m = image.pose;
  const double u = column, v = row, x = (u - k[2]) / k[0], y = (v - k[3]) / k[1];
  return {{m[3], m[7], m[11]},
          {m[0] * x + m[1] * y + m[2], m[4] * x + m[5] * y + m[6], m[8] * x + m[9] * y + m[10]}};
}

TEST(Render, DepthAndSegmentsAreThoseOfTheSurfaces) {
  RenderOptions options;
  options.width = 40;
  options.height = 32;
  options.samples = 1;
  for (const RobotTask task : kTasks) {
    const RobotEpisode& episode = stored_episode(task);
    const int frame = episode.frames / 2;
    const Surfaces surfaces(episode, frame);
    int seen = 0;
    for (int camera = 0; camera < 2; ++camera) {
      const RgbdImage image = render_robot(episode, frame, camera, options);
      for (int row = 0; row < image.height; ++row) {
        for (int column = 0; column < image.width; ++column) {
          const std::size_t i = static_cast<std::size_t>(row * image.width + column);
          const Ray ray = ray_of(image, row, column);
          const double depth = image.depth[i], end = depth > 0 ? depth : 2;
          ASSERT_EQ(depth > 0, image.segment[i] >= 0);
          // Steps as long as nothing is near can jump over nothing.
          const double unit_length = length(ray.direction);
          double t = .1;
          while (t < end - 1e-4) {
            const double free = surfaces.nearest(ray.origin + t * ray.direction);
            ASSERT_GT(free, -1e-5) << word_of(task) << " camera " << camera << " at " << row << ", "
                                   << column;
            t += std::max(free, 1e-4) / unit_length;
          }
          if (depth == 0) continue;
          ++seen;
          const auto shape = static_cast<std::size_t>(image.segment[i]);
          ASSERT_NEAR(surfaces.distance(shape, ray.origin + depth * ray.direction), 0, 2e-5)
              << row << ", " << column;
        }
      }
    }
    EXPECT_GT(seen, 1000);  // of 2,560 pixels
  }
}

TEST(Render, EveryPartCanBeSeen) {
  const auto parts = [](RobotTask task) {
    std::set<ScenePart> seen;
    const RobotEpisode& episode = stored_episode(task);
    for (int camera = 0; camera < 2; ++camera) {
      for (const std::int16_t shape : render_robot(episode, 0, camera).segment)
        if (shape >= 0) seen.insert(episode.shapes[static_cast<std::size_t>(shape)].part);
    }
    return seen;
  };
  using enum ScenePart;
  EXPECT_EQ(parts(RobotTask::sweep), (std::set{table, left_arm, right_arm, brush, pan, grain}));
  EXPECT_EQ(parts(RobotTask::lift_can), (std::set{table, left_arm, right_arm, can, block, carton}));
}

TEST(Render, ColourIsShadedAndBackgroundIsWhite) {
  const RobotEpisode& episode = stored_episode(RobotTask::lift_can);
  const RgbdImage image = render_robot(episode, 0, 0);
  RenderOptions bright;
  bright.shadows = false;
  const RgbdImage without = render_robot(episode, 0, 0, bright);
  int darker = 0, white = 0, background = 0;
  for (std::size_t i = 0; i < image.depth.size(); ++i) {
    ASSERT_LE(image.colour[3 * i], without.colour[3 * i]);
    darker += image.colour[3 * i] + 20 < without.colour[3 * i];
    background += image.depth[i] == 0;
    white += image.colour[3 * i] == 255 && image.colour[3 * i + 1] == 255 && image.colour[3 * i + 2] == 255;
  }
  EXPECT_GT(darker, 200);
  EXPECT_GT(background, 2000);
  EXPECT_NEAR(white, background, 600);  // at edges half a pixel is
  EXPECT_EQ(image.depth, without.depth);
  // A green block is green.
  for (std::size_t i = 0; i < image.segment.size(); ++i) {
    if (image.segment[i] < 0 ||
        episode.shapes[static_cast<std::size_t>(image.segment[i])].part != ScenePart::block)
      continue;
    if (i % 128 < 1 || image.segment[i - 1] != image.segment[i] || image.segment[i + 1] != image.segment[i])
      continue;
    EXPECT_GT(image.colour[3 * i + 1], image.colour[3 * i]);
  }
}

TEST(Render, DepthDoesNotDependOnTheSamplesOfColour) {
  RenderOptions one, three;
  one.samples = 1;
  three.samples = 3;
  one.width = three.width = 64;
  one.height = three.height = 48;
  const RobotEpisode& episode = stored_episode(RobotTask::drop_can);
  const RgbdImage a = render_robot(episode, 5, 1, one), b = render_robot(episode, 5, 1, three);
  EXPECT_EQ(a.depth, b.depth);
  EXPECT_EQ(a.segment, b.segment);
  EXPECT_EQ(a.intrinsics, b.intrinsics);
  double difference = 0;
  for (std::size_t i = 0; i < a.colour.size(); ++i) difference += std::abs(a.colour[i] - b.colour[i]);
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference / static_cast<double>(a.colour.size()), 6);
}

TEST(Render, WrongRequestsGiveOneSentence) {
  const RobotEpisode& episode = stored_episode(RobotTask::lift_can);
  expect_error([&] { render_robot(episode, 24, 0); }, "frame must be 0 to 23, got 24");
  expect_error([&] { render_robot(episode, 0, 2); }, "camera must be 0 to 1, got 2");
  RenderOptions options;
  options.width = 5;
  expect_error([&] { render_robot(episode, 0, 0, options); }, "must be 8 to 4096, got 5");
  options = {};
  options.samples = 0;
  expect_error([&] { render_robot(episode, 0, 0, options); }, "samples must be 1 to 8, got 0");
}

}  // namespace
}  // namespace topomask::testing
