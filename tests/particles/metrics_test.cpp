// SSIM, PSNR, Chamfer distances and errors of poses against plain loops and values known beforehand.
#include "topomask/image_metrics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "masks/gradcheck.h"
#include "support/expect_error.h"

namespace topomask::testing {
namespace {

using oracle::max_difference;
using oracle::test_values;

// [H, W, C] from 0 to 1
at::Tensor picture(int salt, std::int64_t height = 17, std::int64_t width = 14) {
  return test_values({height, width, 3}, salt) * .5 + .5;
}

// One window and channel, term by term.
double plain_ssim(const at::Tensor& a, const at::Tensor& b, std::int64_t row, std::int64_t column,
                  std::int64_t channel) {
  double weight_sum = 0, sum_a = 0, sum_b = 0, sum_aa = 0, sum_bb = 0, sum_ab = 0;
  for (std::int64_t i = -5; i <= 5; ++i)
    for (std::int64_t j = -5; j <= 5; ++j) {
      const double w = std::exp(-static_cast<double>(i * i + j * j) / (2 * 1.5 * 1.5));
      const double x = a[row + i][column + j][channel].item<double>(),
                   y = b[row + i][column + j][channel].item<double>();
      weight_sum += w;
      sum_a += w * x;
      sum_b += w * y;
      sum_aa += w * x * x;
      sum_bb += w * y * y;
      sum_ab += w * x * y;
    }
  const double ma = sum_a / weight_sum, mb = sum_b / weight_sum;
  const double va = sum_aa / weight_sum - ma * ma, vb = sum_bb / weight_sum - mb * mb,
               cov = sum_ab / weight_sum - ma * mb;
  return (2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4));
}

TEST(ImageMetrics, SsimIsThatOfEveryWindow) {
  const at::Tensor a = picture(1), b = .7 * a + .3 * picture(8);
  const at::Tensor map = ssim_map(a, b);
  ASSERT_EQ(map.sizes(), (at::IntArrayRef{7, 4}));
  double sum = 0;
  for (std::int64_t i = 0; i < 7; ++i)
    for (std::int64_t j = 0; j < 4; ++j) {
      double expected = 0;
      for (std::int64_t c = 0; c < 3; ++c) expected += plain_ssim(a, b, i + 5, j + 5, c) / 3;
      EXPECT_NEAR(map[i][j].item<double>(), expected, 1e-12);
      sum += expected;
    }
  EXPECT_NEAR(ssim(a, b).item<double>(), sum / 28, 1e-12);
  EXPECT_LT(sum / 28, .97);
  // A weight counts the pixel in the middle of a window.
  at::Tensor weight = at::zeros({17, 14});
  weight[6][5] = 1;
  weight[8][7] = 3;
  EXPECT_NEAR(ssim(a, b, weight).item<double>(), (map[1][0] + 3 * map[3][2]).item<double>() / 4, 1e-12);
  weight.zero_()[0][0] = 1;  // no whole window there
  EXPECT_TRUE(std::isnan(ssim(a, b, weight).item<double>()));
}

TEST(ImageMetrics, KnownValues) {
  const at::Tensor a = picture(1);
  EXPECT_NEAR(ssim(a, a).item<double>(), 1, 1e-13);
  EXPECT_EQ(psnr(a, a).item<double>(), std::numeric_limits<double>::infinity());
  // Flat pictures have no structure: (2 x y + C1) / (x^2 + y^2 + C1).
  const at::Tensor flat = at::full({12, 12, 3}, .25, at::kDouble),
                   other = at::full({12, 12, 3}, .75, at::kDouble);
  EXPECT_NEAR(ssim(flat, other).item<double>(), (2 * .25 * .75 + 1e-4) / (.0625 + .5625 + 1e-4), 1e-12);
  EXPECT_NEAR(psnr(flat, other).item<double>(), -10 * std::log10(.25), 1e-12);
  // A negative has the opposite structure.
  EXPECT_LT(ssim(a, 1 - a).item<double>(), -.5);
  // Bytes are 255ths; leading dimensions are kept.
  const at::Tensor bytes = (at::stack({a, picture(2)}) * 255).round().to(at::kByte);
  const at::Tensor similarity = ssim(bytes, bytes.flip(0));
  ASSERT_EQ(similarity.sizes(), (at::IntArrayRef{2}));
  EXPECT_NEAR(similarity[0].item<double>(), ssim(bytes[0] / 255., bytes[1] / 255.).item<double>(), 1e-6);
  EXPECT_NEAR(psnr(bytes, bytes.flip(0))[1].item<double>(),
              -10 * std::log10((bytes[0] / 255. - bytes[1] / 255.).square().mean().item<double>()), 1e-5);
}

TEST(ImageMetrics, PsnrOfPixelsThatCount) {
  const at::Tensor a = at::zeros({12, 13, 3}), b = at::zeros({12, 13, 3});
  b[2][3] = .1f;
  b[4][4][0] = .3f;
  b[7][7] = std::numeric_limits<float>::quiet_NaN();  // does not count
  const at::Tensor weight = at::zeros({12, 13}, at::kBool);
  weight[2][3] = true;
  weight[4][4] = true;
  EXPECT_NEAR(psnr(a, b, weight).item<double>(), -10 * std::log10((.01 + .03) / 2), 1e-5);
  EXPECT_TRUE(std::isnan(psnr(a, b, weight.zero_()).item<double>()));
  const at::Tensor moved = moving_pixels(a, b.nan_to_num(0), .2);
  EXPECT_EQ(moved.sum().item<std::int64_t>(), 1);
  EXPECT_TRUE(moved[4][4].item<bool>());
}

TEST(ImageMetrics, ChamferIsTheMeanOverNearestPoints) {
  const at::Tensor a = test_values({2, 30, 3}, 1), b = test_values({2, 45, 3}, 2);
  const at::Tensor all = at::norm(a.unsqueeze(2) - b.unsqueeze(1), 2, {-1});
  const ChamferDistance found = chamfer(a, b);
  EXPECT_LE(max_difference(found.from_a, all.amin(2).mean(1)), 1e-12);
  EXPECT_LE(max_difference(found.from_b, all.amin(1).mean(1)), 1e-12);
  EXPECT_LE(max_difference(chamfer(a[1], b[1]).mean(), found.mean()[1]), 1e-15);
  EXPECT_LE(max_difference(chamfer(a.to(at::kFloat), b.to(at::kFloat)).from_a, found.from_a), 1e-6);
  EXPECT_EQ(chamfer(a[0], a[0]).mean().item<double>(), 0);
  EXPECT_TRUE(std::isnan(chamfer(a[0], b[0].narrow(0, 0, 0)).mean().item<double>()));
}

// By Rodrigues' formula: `degrees` about the axis, [3, 3] float64.
at::Tensor rotation_about(std::vector<double> axis, double degrees) {
  const double length = std::hypot(axis[0], axis[1], axis[2]), angle = degrees * std::numbers::pi / 180;
  const at::Tensor k = at::tensor(axis, at::kDouble) / length;
  const double x = k[0].item<double>(), y = k[1].item<double>(), z = k[2].item<double>();
  const at::Tensor cross = at::tensor({0., -z, y, z, 0., -x, -y, x, 0.}, at::kDouble).view({3, 3});
  return at::eye(3, at::kDouble) + std::sin(angle) * cross + (1 - std::cos(angle)) * cross.mm(cross);
}

// An object of some centimetres, a metre away from the origin.
at::Tensor object_points(std::int64_t count = 40) {
  return test_values({count, 3}, 5) * .03 + at::tensor({1., .2, -.3}, at::kDouble);
}

constexpr double kDegrees = 1e-5;  // what rounding may add to an angle in float64

TEST(RigidError, OfKnownMotions) {
  const at::Tensor from = object_points(), shift = at::tensor({.03, -.04, .12}, at::kDouble);
  const at::Tensor truth = from.mm(rotation_about({1, 2, -1}, 70).t()) + .5;
  const at::Tensor middle = truth.mean(0, true);
  for (const double degrees : {0., 1e-3, .5, 5., 90., 179., 179.999, 180.}) {
    const at::Tensor predicted =
        (truth - middle).mm(rotation_about({-.3, 1, .4}, degrees).t()) + middle + shift;
    const RigidError error = rigid_error(from, predicted, truth);
    EXPECT_NEAR(error.position, .13, 1e-12);
    EXPECT_NEAR(error.rotation, degrees, kDegrees);
    const RigidError other = rigid_error(from, truth, predicted);  // as far apart
    EXPECT_NEAR(other.position, error.position, 1e-12);
    EXPECT_NEAR(other.rotation, error.rotation, kDegrees);
    const RigidError rounded =
        rigid_error(from.to(at::kFloat), predicted.to(at::kFloat), truth.to(at::kFloat));
    EXPECT_NEAR(rounded.position, .13, 1e-6);
    EXPECT_NEAR(rounded.rotation, degrees, 1e-4);
  }
  // An object that stays where it was is off by its whole motion.
  const RigidError copied = rigid_error(from, from, truth);
  EXPECT_NEAR(copied.rotation, 70, kDegrees);
  EXPECT_NEAR(copied.position, (from.mean(0) - middle[0]).norm().item<double>(), 1e-12);
}

// What is not a rigid motion counts as the rigid motion next to it.
TEST(RigidError, IsThatOfTheNearestRigidMotion) {
  const at::Tensor from = object_points(), middle = from.mean(0, true);
  const at::Tensor turn = rotation_about({0, 1, 1}, 30);
  const RigidError grown = rigid_error(from, 1.7 * (from - middle).mm(turn.t()) + middle, from);
  EXPECT_NEAR(grown.position, 0, 1e-12);
  EXPECT_NEAR(grown.rotation, 30, kDegrees);
  // Points in a plane tell a rotation, out of the plane too.
  const at::Tensor flat = from * at::tensor({1., 1., 0.}, at::kDouble);
  EXPECT_NEAR(rigid_error(flat, flat.mm(turn.t()), flat).rotation, 30, kDegrees);
}

// Corners of a box whose sides differ. No rotation makes a mirror image: the nearest one gives up the axis
// along which the box is shortest.
TEST(RigidError, AMirrorImageIsNoRotation) {
  std::vector<double> corners;
  for (const double x : {-.03, .03})
    for (const double y : {-.02, .02})
      for (const double z : {-.01, .01}) corners.insert(corners.end(), {x, y, z});
  const at::Tensor box = at::tensor(corners, at::kDouble).view({8, 3});
  const auto mirrored = [&](std::vector<double> signs) {
    return rigid_error(box, box * at::tensor(signs, at::kDouble), box);
  };
  EXPECT_NEAR(mirrored({1, 1, -1}).rotation, 0, kDegrees);      // not at all
  EXPECT_NEAR(mirrored({1, -1, 1}).rotation, 180, kDegrees);    // about the first axis
  EXPECT_NEAR(mirrored({-1, 1, 1}).rotation, 180, kDegrees);    // about the second
  EXPECT_NEAR(mirrored({-1, -1, -1}).rotation, 180, kDegrees);  // about the third
  EXPECT_NEAR(mirrored({-1, -1, -1}).position, 0, 1e-12);
}

TEST(RigidError, PointsOnALineHaveAPlaceAlone) {
  const at::Tensor shift = at::tensor({0., .3, .4}, at::kDouble);
  const at::Tensor steps = at::arange(7, at::kDouble).view({7, 1}) * .01;
  const at::Tensor line = steps * at::tensor({1., 2., -1.}, at::kDouble) + 1;
  for (const at::Tensor& points : {line, line.narrow(0, 0, 2), line.narrow(0, 0, 1),
                                   line.narrow(0, 3, 1).expand({5, 3}), line.to(at::kFloat)}) {
    const RigidError error = rigid_error(points, points + shift, points);
    EXPECT_NEAR(error.position, .5, 1e-6) << points.sizes();
    EXPECT_TRUE(std::isnan(error.rotation)) << points.sizes();
  }
  // A cloud that has collapsed shows no rotation either.
  const at::Tensor from = object_points(7);
  EXPECT_TRUE(std::isnan(rigid_error(from, line, from).rotation));
  EXPECT_TRUE(std::isnan(rigid_error(from, from, line).rotation));
  EXPECT_TRUE(std::isnan(rigid_error(from, at::ones_like(from), from).rotation));
}

TEST(RigidError, IsUndefinedWherePointsAre) {
  const at::Tensor points = object_points();
  for (const double number :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    at::Tensor spoiled = points.clone();
    spoiled[3][1] = number;
    for (const RigidError& error :
         {rigid_error(spoiled, points, points), rigid_error(points, spoiled, points),
          rigid_error(points, points, spoiled)}) {
      EXPECT_TRUE(std::isnan(error.position)) << number;
      EXPECT_TRUE(std::isnan(error.rotation)) << number;
    }
  }
}

TEST(RigidError, SaysWhatIsWrong) {
  const at::Tensor points = object_points(), none = points.narrow(0, 0, 0);
  const char* expected = "rigid_error: expected three clouds [P, 3] of the same points";
  expect_error([&] { rigid_error(none, none, none); }, expected);
  expect_error([&] { rigid_error(points, points.narrow(0, 0, 39), points); }, expected);
  expect_error([&] { rigid_error(points, points, points.unsqueeze(0)); }, expected);
  expect_error([&] { rigid_error(points.t(), points.t(), points.t()); }, expected);
  expect_error([&] { rigid_error(points, points, points.to(at::kLong)); }, {expected, "Long"});
  expect_error([&] { rigid_error(points, at::Tensor(), points); }, {expected, "got none"});
}

TEST(ImageMetrics, SayWhatIsWrong) {
  const at::Tensor a = picture(1);
  expect_error([&] { ssim(a, a.narrow(0, 0, 12)); }, "ssim: expected two images alike");
  expect_error([&] { ssim(a.narrow(0, 0, 10), a.narrow(0, 0, 10)); }, "at least 11 x 11 pixels");
  expect_error([&] { psnr(a.to(at::kInt), a.to(at::kInt)); }, "of floating point or uint8, got Int");
  expect_error([&] { psnr(a, a, at::ones({3, 3})); }, "psnr: expected a weight for every pixel");
  expect_error([&] { ssim(at::Tensor(), a); }, "got none");
  expect_error([&] { chamfer(a[0], at::ones({4, 2})); }, "chamfer: expected points [N, D] and [M, D]");
}

}  // namespace
}  // namespace topomask::testing
