// Rays and points of cameras, against the frames of the robot: what a ray meets is where its depth says.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "masks/gradcheck.h"
#include "robot/stored.h"
#include "support/expect_error.h"
#include "topomask/rgbd_data.h"
#include "topomask/rgbd_geometry.h"

namespace topomask::testing {
namespace {

using oracle::max_difference;
using oracle::test_values;

RgbdMoment stored_moment() {
  RgbdOptions options;
  options.size = 48;
  return open_rgbd(kStates, options)->moment(1, 7);
}

TEST(RgbdGeometry, UnprojectedDepthLiesOnTheSurfaceAlongTheRays) {
  const RgbdMoment moment = stored_moment();
  const at::Tensor points = unproject(moment.depth, moment.intrinsics, moment.poses);
  const CameraRays rays = camera_rays(moment.intrinsics, moment.poses, 48, 48);
  ASSERT_EQ(points.sizes(), (at::IntArrayRef{2, 48, 48, 3}));
  ASSERT_EQ(rays.directions.sizes(), points.sizes());
  EXPECT_LE(max_difference(at::norm(rays.directions, 2, {-1}), at::ones({2, 48, 48})), 1e-6);
  EXPECT_LE(
      max_difference(rays.origins + (moment.depth * rays.stretch).unsqueeze(-1) * rays.directions, points),
      1e-6);
  // The table's top is z = 0: shape 0.
  const at::Tensor known = known_depth(moment.depth), table = moment.segments == 0;
  ASSERT_GT(table.sum().item<std::int64_t>(), 500);
  ASSERT_LT(known.sum().item<std::int64_t>(), 2 * 48 * 48);
  EXPECT_TRUE(at::equal(known, moment.segments >= 0));
  const at::Tensor top = points.select(-1, 2).masked_select(table);
  EXPECT_GT(((top.abs() < 1e-4).to(at::kDouble)).mean().item<double>(), .95);  // the rest: its edges
  EXPECT_LT(top.max().item<double>(), 1e-4);
  // Both cameras see the same world: points of one are near those of the other.
  const auto cloud = [&](std::int64_t camera) {
    return points[camera].view({-1, 3}).index_select(0, known[camera].view({-1}).nonzero().squeeze(1));
  };
  const at::Tensor nearest = std::get<0>(at::cdist(cloud(0), cloud(1)).min(1));
  EXPECT_LT(nearest.median().item<double>(), .025);
}

TEST(RgbdGeometry, ProjectionUndoesUnprojection) {
  const RgbdMoment moment = stored_moment();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor intrinsics = moment.intrinsics.to(type);
    at::Tensor poses = moment.poses.to(at::kDouble);
    const at::Tensor depth = .3 + test_values({2, 6, 5}).abs();
    const ProjectedPoints back =
        project(unproject(depth, intrinsics, poses.to(type)).flatten(1, 2), intrinsics, poses.to(type));
    EXPECT_EQ(back.depth.scalar_type(), type);
    // Stored rotations are rigid to seven digits only.
    EXPECT_LE(max_difference(back.depth, depth.flatten(1)), 1e-5);
    for (std::int64_t v = 0; v < 6; ++v)
      for (std::int64_t u = 0; u < 5; ++u)
        EXPECT_LE(max_difference(back.pixels.select(1, v * 5 + u),
                                 at::tensor({static_cast<double>(u), static_cast<double>(v)}).expand({2, 2})),
                  1e-3);
  }
  // An exactly rigid pose gives it back exactly.
  const double c = std::cos(.4), s = std::sin(.4);
  const at::Tensor pose =
      at::tensor({c, 0., s, 1., 0., 1., 0., 2., -s, 0., c, 3., 0., 0., 0., 1.}, at::kDouble).view({4, 4});
  const at::Tensor camera = at::tensor({50., 60., 2., 3.}, at::kDouble),
                   depth = 1 + test_values({4, 7}).abs();
  const ProjectedPoints back = project(unproject(depth, camera, pose).flatten(0, 1), camera, pose);
  EXPECT_LE(max_difference(back.depth, depth.flatten()), 1e-13);
  EXPECT_LE(max_difference(back.pixels[5], at::tensor({5., 0.})), 1e-12);
  EXPECT_LE(max_difference(back.pixels[9], at::tensor({2., 1.})), 1e-12);
  // The middle of the picture looks along z.
  const CameraRays middle = camera_rays(camera, pose, at::tensor({2., 3.}).view({1, 2}));
  EXPECT_LE(max_difference(middle.directions[0], at::tensor({s, 0., c}, at::kDouble)), 1e-15);
  EXPECT_LE(max_difference(middle.origins[0], at::tensor({1., 2., 3.}, at::kDouble)), 0);
}

TEST(RgbdGeometry, RaysOfPixelsAreThoseOfThePicture) {
  const RgbdMoment moment = stored_moment();
  const CameraRays all = camera_rays(moment.intrinsics, moment.poses, 48, 48);
  const at::Tensor pixels = at::tensor({0, 0, 47, 3, 10, 40, 1, 2, 3, 4, 5, 6}, at::kLong).view({2, 3, 2});
  const CameraRays some = camera_rays(moment.intrinsics, moment.poses, pixels);
  ASSERT_EQ(some.origins.sizes(), (at::IntArrayRef{2, 3, 3}));
  ASSERT_EQ(some.stretch.sizes(), (at::IntArrayRef{2, 3}));
  for (std::int64_t camera = 0; camera < 2; ++camera)
    for (std::int64_t r = 0; r < 3; ++r) {
      const std::int64_t u = pixels[camera][r][0].item<std::int64_t>(),
                         v = pixels[camera][r][1].item<std::int64_t>();
      EXPECT_LE(max_difference(some.directions[camera][r], all.directions[camera][v][u]), 1e-7);
    }
  // Batches of cameras, too.
  const auto twice = [](const at::Tensor& x) { return at::stack({x, x}); };
  EXPECT_LE(max_difference(camera_rays(twice(moment.intrinsics), twice(moment.poses), 48, 48).directions[1],
                           all.directions),
            1e-7);
}

TEST(RgbdGeometry, SaysWhatIsWrong) {
  const at::Tensor camera = at::ones({2, 4}), pose = at::eye(4).expand({2, 4, 4});
  expect_error(
      [&] {
        camera_rays(at::ones({2, 3}), pose, 4, 4);
      },
      "camera_rays: expected intrinsics [..., 4]");
  expect_error([&] { camera_rays(camera, at::eye(4), 4, 4); },
               "expected poses [2, 4, 4] of floating point on cpu");
  expect_error([&] { camera_rays(camera, pose, -1, 4); }, "height and a width of at least 0, got -1 and 4");
  expect_error(
      [&] {
        camera_rays(camera, pose, at::ones({3, 5, 2}));
      },
      "leading dimensions of the intrinsics");
  expect_error([&] { unproject(at::ones({4, 4}), camera, pose); }, "unproject: expected depth");
  expect_error([&] { project(at::ones({2, 4, 2}), camera, pose); }, "expected points [..., R, 3]");
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               infinity = std::numeric_limits<double>::infinity();
  const at::Tensor known = known_depth(at::tensor({0., -1., nan, infinity, .5}));
  EXPECT_EQ(known.sum().item<std::int64_t>(), 1);
  EXPECT_TRUE(known[4].item<bool>());
}

}  // namespace
}  // namespace topomask::testing
