// The renderer against its plain statement, its gradients against finite differences, and the kernels of the
// CPU against the operations that other devices use.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "masks/gradcheck.h"
#include "particles/ray_samples.h"
#include "particles/ring_features.h"
#include "rendering_oracle.h"
#include "support/expect_error.h"
#include "topomask/particle_rendering.h"

namespace topomask::testing {
namespace {

using oracle::max_difference;
using oracle::test_values;

// Ten times as large as the real thing, so that steps of finite differences are small beside it, and little
// enough matter for light to pass.
RendererOptions coarse() {
  RendererOptions options;
  options.features = 3;
  options.neighbours = 5;
  options.hidden = 6;
  options.samples = 9;
  options.radii = {0, .1, .2, .5};
  options.bandwidths = {.1, .1, .1, .5};
  options.nearest = .5;
  options.farthest = 4;
  options.spacing = .1;
  options.cell = .25;
  return options;
}

RendererWeights weights_for(const RendererOptions& options) {
  int salt = 20;
  const auto layer = [&](std::int64_t in, std::int64_t out) {
    ++salt;
    return LinearWeights{test_values({out, in}, salt), .3 * test_values({out}, salt + 50)};
  };
  const std::int64_t hidden = options.hidden;
  RendererWeights weights;
  weights.trunk1 = layer(options.inputs(), hidden);
  weights.trunk2 = layer(hidden, hidden);
  weights.density = layer(hidden, 1);
  weights.density.bias -= 5;
  weights.colour1 = layer(hidden + 3, hidden);
  weights.colour2 = layer(hidden, 3);
  return weights;
}

std::vector<LinearWeights*> layers_of(RendererWeights& weights) {
  return {&weights.trunk1, &weights.trunk2, &weights.density, &weights.colour1, &weights.colour2};
}

// Rays from about (2, 0, 0) towards the particles around the origin; the last of them looks away.
struct Scene {
  at::Tensor positions, features, origins, directions;

  Scene(std::int64_t clouds, std::int64_t particles, std::int64_t rays, std::int64_t width)
      : positions(.6 * test_values({clouds, particles, 3}, 1)),
        features(test_values({clouds, particles, width}, 2)),
        origins(at::tensor({2., 0., 0.}, at::kDouble) + .2 * test_values({clouds, rays, 3}, 3)),
        directions(.3 * test_values({clouds, rays, 3}, 4) - origins) {
    directions.select(1, rays - 1).neg_();
    directions = directions / directions.norm(2, {-1}, true);
  }
};

at::Tensor all_of(const Rendered& rendered) {
  return at::cat({rendered.colour, rendered.opacity.unsqueeze(-1), rendered.depth.unsqueeze(-1)}, -1);
}

at::Tensor oracle_of(const Scene& scene, const RendererWeights& weights, const RendererOptions& options) {
  const std::int64_t clouds = scene.origins.size(0), rays = scene.origins.size(1);
  at::Tensor result = at::empty({clouds, rays, 5}, at::kDouble);
  for (std::int64_t b = 0; b < clouds; ++b) {
    const oracle::Vector particles = oracle::values_of(scene.positions[b]),
                         features = oracle::values_of(scene.features[b]);
    for (std::int64_t r = 0; r < rays; ++r) {
      const oracle::Vector ray =
          oracle::rendered_ray(particles, features, oracle::values_of(scene.origins[b][r]),
                               oracle::values_of(scene.directions[b][r]), weights, options);
      result[b][r].copy_(at::tensor(ray, at::kDouble));
    }
  }
  return result;
}

TEST(RenderParticles, IsWhatItSays) {
  const RendererOptions options = coarse();
  const RendererWeights weights = weights_for(options);
  for (const std::int64_t particles : {0, 1, 4, 60}) {  // fewer than the neighbours, too
    const Scene scene(2, particles, 24, options.features);
    const at::Tensor expected = oracle_of(scene, weights, options);
    const at::Tensor got = all_of(
        render_particles(scene.positions, scene.features, scene.origins, scene.directions, weights, options));
    EXPECT_LE(max_difference(got, expected), 1e-12) << particles;
    // The ray that looks away sees white, at the far end.
    EXPECT_TRUE(at::equal(got.select(1, 23), at::tensor({1., 1., 1., 0., 4.}, at::kDouble).expand({2, 5})));
    const at::Tensor opacity = got.select(2, 3);
    if (particles == 60) {  // neither nothing nor a wall
      EXPECT_GT(opacity.max().item<double>(), .2);
      EXPECT_LT(opacity.max().item<double>(), .99);
    }
  }
}

TEST(RenderParticles, FullSizeInFloat32) {
  RendererOptions options;
  RendererWeights weights = weights_for(options);
  for (LinearWeights* layer : layers_of(weights)) layer->weight *= .2;
  weights.density.bias.fill_(-.5);
  Scene scene(2, 300, 40, options.features);
  scene.positions *= .3;
  scene.directions = at::tensor({-1., 0., 0.}, at::kDouble) + .04 * test_values({2, 40, 3}, 4);
  scene.directions = scene.directions / scene.directions.norm(2, {-1}, true);
  scene.origins.select(2, 0).sub_(1);
  for (at::Tensor* x : {&scene.positions, &scene.features, &scene.origins, &scene.directions})
    *x = x->to(at::kFloat);
  const at::Tensor expected = oracle_of(scene, weights, options);
  for (LinearWeights* layer : layers_of(weights)) {
    layer->weight = layer->weight.to(at::kFloat);
    layer->bias = layer->bias.to(at::kFloat);
  }
  const Rendered got =
      render_particles(scene.positions, scene.features, scene.origins, scene.directions, weights, options);
  EXPECT_EQ(got.colour.scalar_type(), at::kFloat);
  EXPECT_LE(max_difference(all_of(got), expected), 1e-5);
  EXPECT_GT(got.opacity.mean().item<double>(), .3);
  // Without gradients more rays than these are rendered in parts. The ones above are cut by the border of
  // two.
  const at::NoGradGuard no_grad;
  const auto among = [](const at::Tensor& x, double others) {
    const at::Tensor before = at::zeros({2, 16364, 3}), after = at::zeros({2, 60, 3});
    before.select(2, 0).fill_(others);
    after.select(2, 0).fill_(others);
    return at::cat({before, x, after}, 1);
  };
  const Rendered parts = render_particles(scene.positions, scene.features, among(scene.origins, 9),
                                          among(scene.directions, 1), weights, options);
  ASSERT_EQ(parts.depth.sizes(), (at::IntArrayRef{2, 16464}));
  EXPECT_LE(max_difference(parts.colour.narrow(1, 16364, 40), got.colour), 1e-6);
  EXPECT_EQ(parts.opacity.narrow(1, 16404, 60).abs().max().item<double>(), 0);
}

TEST(RenderParticles, GradientsMatchFiniteDifferences) {
  RendererOptions options = coarse();
  options.neighbours = 8;  // all of them: a particle that becomes the next nearest makes the colour jump
  RendererWeights weights = weights_for(options);
  const Scene scene(2, 7, 5, options.features);
  // In the middle of cells, where a small step leaves them occupied.
  const at::Tensor centred =
      ((scene.positions / options.cell).floor() + .5) * options.cell + .03 * test_values({2, 7, 3}, 9);
  std::vector<at::Tensor> leaves = {centred, scene.features};
  for (const LinearWeights* layer : layers_of(weights)) {
    leaves.push_back(layer->weight);
    leaves.push_back(layer->bias);
  }
  const at::Tensor ahead = test_values({2, 5, 5}, 11);
  oracle::expect_gradients(
      [&](const std::vector<at::Tensor>& x) {
        RendererWeights own;
        std::size_t next = 2;
        for (LinearWeights* layer : layers_of(own)) {
          layer->weight = x[next++];
          layer->bias = x[next++];
        }
        return (all_of(render_particles(x[0], x[1], scene.origins, scene.directions, own, options)) * ahead)
            .sum();
      },
      leaves);
}

TEST(RenderParticles, TheOrderOfParticlesDoesNotMatter) {
  const RendererOptions options = coarse();
  const RendererWeights weights = weights_for(options);
  const Scene scene(1, 60, 30, options.features);
  const at::Tensor order = (at::arange(60, at::kLong) * 23 + 7).remainder(60);
  const auto render = [&](const at::Tensor& x, const at::Tensor& f) {
    return all_of(render_particles(x, f, scene.origins, scene.directions, weights, options));
  };
  const at::Tensor plain = render(scene.positions, scene.features);
  EXPECT_LE(max_difference(
                render(scene.positions.index_select(1, order), scene.features.index_select(1, order)), plain),
            1e-13);
  EXPECT_GT(max_difference(render(scene.positions.index_select(1, order), scene.features), plain), 1e-3);
}

TEST(RenderParticles, ThreadsChangeNothing) {
  const RendererOptions options = coarse();
  const RendererWeights weights = weights_for(options);
  const Scene scene(2, 900, 700, options.features);
  const auto run = [&](int threads) {
    set_num_threads(threads);
    const at::Tensor x = scene.positions.clone().requires_grad_(),
                     f = scene.features.clone().requires_grad_();
    const at::Tensor colour =
        render_particles(x, f, scene.origins, scene.directions, weights, options).colour;
    std::vector<at::Tensor> result = torch::autograd::grad({colour.square().sum()}, {x, f});
    result.push_back(colour.detach());
    return result;
  };
  const int before = num_threads();
  const std::vector<at::Tensor> one = run(1), four = run(4);
  set_num_threads(before);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_LE(max_difference(one[i], four[i]), 1e-12) << i;
}

TEST(RaySamples, SkipWhatIsEmpty) {
  RendererOptions options;
  options.samples = 12;
  for (const double spread : {.1, 3e4}) {  // metres: the second is beyond the grid's last cell
    Scene scene(3, 40, 50, 1);
    scene.positions *= spread;
    scene.origins = scene.positions.select(1, 0).unsqueeze(1) + .4 * test_values({3, 50, 3}, 5);
    scene.directions = scene.positions.narrow(1, 0, 1) - scene.origins + .05 * test_values({3, 50, 3}, 6);
    scene.directions = scene.directions / scene.directions.norm(2, {-1}, true);
    const RaySamples samples = ray_samples(scene.positions, scene.origins, scene.directions, options);
    std::vector<std::int64_t> rays, slots, ptr = {0};
    std::vector<double> distances;
    for (std::int64_t b = 0; b < 3; ++b) {
      for (std::int64_t r = 0; r < 50; ++r) {
        const std::vector<std::int64_t> steps =
            oracle::steps_near(oracle::values_of(scene.positions[b]), oracle::values_of(scene.origins[b][r]),
                               oracle::values_of(scene.directions[b][r]), options);
        for (std::size_t i = 0; i < steps.size(); ++i) {
          rays.push_back(b * 50 + r);
          slots.push_back((b * 50 + r) * 12 + static_cast<std::int64_t>(i));
          distances.push_back(.1 + (static_cast<double>(steps[i]) + .5) * .01);
        }
      }
      ptr.push_back(static_cast<std::int64_t>(rays.size()));
    }
    if (spread < 1) {
      EXPECT_GT(rays.size(), 300u);
      EXPECT_TRUE(at::equal(samples.ray, at::tensor(rays, at::kLong)));
      EXPECT_TRUE(at::equal(samples.slot, at::tensor(slots, at::kLong)));
      EXPECT_TRUE(at::equal(samples.distance, at::tensor(distances, at::kDouble)));
      EXPECT_TRUE(at::equal(samples.ptr, at::tensor(ptr, at::kLong)));
    }
    const RaySamples composed =
        composed_ray_samples(scene.positions, scene.origins, scene.directions, options);
    EXPECT_TRUE(at::equal(samples.ray, composed.ray));
    EXPECT_TRUE(at::equal(samples.slot, composed.slot));
    EXPECT_TRUE(at::equal(samples.distance, composed.distance));
    EXPECT_TRUE(at::equal(samples.query, composed.query));
    EXPECT_TRUE(at::equal(samples.ptr, composed.ptr));
  }
}

TEST(RaySamples, ParticlesThatAreNotFiniteOccupyNothing) {
  const RendererOptions options;
  Scene scene(1, 2, 3, 1);
  scene.positions.select(1, 0).fill_(std::numeric_limits<double>::quiet_NaN());
  scene.positions.select(1, 1).fill_(std::numeric_limits<double>::infinity());
  EXPECT_EQ(ray_samples(scene.positions, scene.origins, scene.directions, options).ray.size(0), 0);
  EXPECT_EQ(composed_ray_samples(scene.positions, scene.origins, scene.directions, options).ray.size(0), 0);
}

TEST(RingFeatures, KernelAndCompositionAgree) {
  const std::vector<double> radii = {0, .1, .3}, bandwidths = {.1, .2, .3};
  const at::Tensor x = .3 * test_values({20, 3}, 1), f = test_values({20, 5}, 2);
  const at::Tensor queries = .3 * test_values({33, 3}, 3);
  queries[4].copy_(x[7]);  // distance 0, where the gradient is 0
  const at::Tensor index =
      ((test_values({33, 6}, 4) + 1) * 12).floor().sub(5).clamp(-1, 19).to(at::kInt).contiguous();
  ASSERT_GT((index == -1).sum().item<std::int64_t>(), 3);
  index[4][0] = 7;
  index[5].fill_(-1);
  const at::Tensor ahead = test_values({33, 18}, 5);
  std::vector<std::vector<at::Tensor>> results;
  for (const auto& function : {ring_features, composed_ring_features}) {
    const at::Tensor own_x = x.clone().requires_grad_(), own_f = f.clone().requires_grad_();
    const at::Tensor out = function(own_x, own_f, queries, index, radii, bandwidths);
    results.push_back(torch::autograd::grad({(out * ahead).sum()}, {own_x, own_f}));
    results.back().push_back(out.detach());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_LE(max_difference(results[0][i], results[1][i]), 1e-12) << i;
    EXPECT_GT(results[0][i].abs().max().item<double>(), .1);
  }
  EXPECT_EQ(results[0][2][5].abs().max().item<double>(), 0);
  // A particle that went astray has no weight and no gradient, and spoils no other.
  for (const auto& function : {ring_features, composed_ring_features}) {
    at::Tensor astray = x.to(at::kFloat).clone();
    astray[7].fill_(1e30f);
    astray.requires_grad_();
    const at::Tensor out =
        function(astray, f.to(at::kFloat), queries.to(at::kFloat), index, radii, bandwidths);
    const at::Tensor gradient = torch::autograd::grad({out.sum()}, {astray})[0];
    EXPECT_TRUE(gradient.isfinite().all().item<bool>());
    EXPECT_EQ(gradient[7].abs().max().item<double>(), 0);
    EXPECT_GT(gradient.abs().max().item<double>(), 0);
  }
  const at::Tensor none = at::empty({0, 3}, at::kDouble), no_features = at::empty({0, 5}, at::kDouble);
  for (const auto& function : {ring_features, composed_ring_features}) {
    EXPECT_TRUE(
        at::equal(function(none, no_features, queries, at::full({33, 6}, -1, at::kInt), radii, bandwidths),
                  at::zeros({33, 18}, at::kDouble)));
  }
}

// On numbers that float32 holds: elsewhere a sample on a particle would be beside it in the other type, and
// have another gradient.
TEST(RingFeatures, Float32IsNearFloat64) {
  const std::vector<double> radii = {0, .1, .3, .2, .05}, bandwidths = {.1, .2, .3, .1, .1};
  const auto rounded = [](const at::Tensor& x) { return x.to(at::kFloat).to(at::kDouble); };
  const at::Tensor x = rounded(.3 * test_values({20, 3}, 1)), f = test_values({20, 5}, 2);
  const at::Tensor queries = rounded(.3 * test_values({33, 3}, 3));
  queries[4].copy_(x[7]);
  const at::Tensor index = ((test_values({33, 6}, 4) + 1) * 12).floor().sub(5).clamp(-1, 19).to(at::kInt);
  index[4][0] = 7;
  const at::Tensor ahead = test_values({33, 30}, 5);
  std::vector<std::vector<at::Tensor>> results;
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor own_x = x.to(dtype).clone().requires_grad_(),
                     own_f = f.to(dtype).clone().requires_grad_();
    const at::Tensor out = ring_features(own_x, own_f, queries.to(dtype), index, radii, bandwidths);
    results.push_back(torch::autograd::grad({(out * ahead.to(dtype)).sum()}, {own_x, own_f}));
    results.back().push_back(out.detach());
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const double scale = results[0][i].abs().max().item<double>();
    EXPECT_LE(max_difference(results[0][i], results[1][i]), 1e-5 * scale) << i;
  }
}

TEST(RenderParticles, SaysWhatIsWrong) {
  const RendererOptions options = coarse();
  const RendererWeights weights = weights_for(options);
  const Scene scene(2, 4, 3, options.features);
  const auto with = [&](const std::function<void(Scene&)>& spoil) {
    return [&, spoil] {
      Scene bad = scene;
      for (at::Tensor* x : {&bad.positions, &bad.features, &bad.origins, &bad.directions}) *x = x->clone();
      spoil(bad);
      render_particles(bad.positions, bad.features, bad.origins, bad.directions, weights, options);
    };
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error(with([&](Scene& s) { s.positions[1][2][0] = nan; }),
               "expected finite positions, got nan at [1, 2, 0]");
  expect_error(with([&](Scene& s) { s.origins[0][1][2] = nan; }),
               "expected finite origins, got nan at [0, 1, 2]");
  expect_error(with([](Scene& s) { s.directions[1][2].fill_(0); }),
               "expected directions of length 1, got length 0 for ray 2 of cloud 1");
  expect_error(with([](Scene& s) { s.directions = s.directions.narrow(1, 0, 2); }),
               "expected directions [2, 3, 3] of floating point on cpu, got Double [2, 2, 3] on cpu");
  expect_error(with([](Scene& s) { s.features = s.features.narrow(2, 0, 2); }),
               "expected features [2, 4, 3]");
  expect_error(with([](Scene& s) { s.origins = s.origins[0]; }), "expected origins [2, R, 3]");
  expect_error(with([](Scene& s) { s.positions = s.positions[0]; }), "expected positions [B, N, 3]");
  expect_error(with([](Scene& s) { s.positions = s.positions.to(at::kLong); }),
               "expected positions [B, N, 3] of floating point, got Long [2, 4, 3]");
  RendererWeights other = weights;
  other.density.weight = at::zeros({2, 6}, at::kDouble);
  expect_error(
      [&] {
        render_particles(scene.positions, scene.features, scene.origins, scene.directions, other, options);
      },
      "expected density with weight [1, 6] and bias [1] on cpu");
  const auto option = [](const std::function<void(RendererOptions&)>& spoil) {
    return [spoil] {
      RendererOptions bad;
      spoil(bad);
      check_renderer(bad);
    };
  };
  expect_error(option([](RendererOptions& o) { o.samples = 0; }), "samples must be 1 to 65536, got 0");
  expect_error(option([](RendererOptions& o) { o.radii.clear(); }),
               "1 to 16 radii and as many bandwidths, got 0 and 4");
  expect_error(option([](RendererOptions& o) { o.bandwidths[1] = 0; }), "bandwidths must be above 0");
  expect_error(option([](RendererOptions& o) { o.radii[1] = -1; }), "radii must be at least 0");
  expect_error(option([](RendererOptions& o) { o.farthest = .05; }), "expected 0 <= nearest < farthest");
  expect_error(option([&](RendererOptions& o) { o.cell = nan; }), "spacing and cell must be above 0");
  expect_error(option([](RendererOptions& o) { o.spacing = 3; }), "expected 1 to 1000000 steps of 3 m");
}

TEST(RenderParticles, NoRaysAndNoClouds) {
  const RendererOptions options = coarse();
  const RendererWeights weights = weights_for(options);
  const auto empty = [](std::int64_t clouds, std::int64_t rows, std::int64_t width) {
    return at::zeros({clouds, rows, width}, at::kDouble);
  };
  EXPECT_EQ(render_particles(empty(2, 5, 3), empty(2, 5, 3), empty(2, 0, 3), empty(2, 0, 3), weights, options)
                .colour.sizes(),
            (at::IntArrayRef{2, 0, 3}));
  EXPECT_EQ(render_particles(empty(0, 5, 3), empty(0, 5, 3), empty(0, 4, 3), empty(0, 4, 3), weights, options)
                .depth.sizes(),
            (at::IntArrayRef{0, 4}));
  // A scene without particles has gradients all the same: zeros.
  const at::Tensor x = empty(1, 0, 3).requires_grad_();
  const Scene scene(1, 1, 3, 3);
  const Rendered white =
      render_particles(x, empty(1, 0, 3), scene.origins, scene.directions, weights, options);
  EXPECT_EQ(torch::autograd::grad({white.colour.sum()}, {x})[0].sizes(), (at::IntArrayRef{1, 0, 3}));
}

}  // namespace
}  // namespace topomask::testing
