// The renderer as a module: what it computes is tested in tests/particles.
#include "topomask/particle_renderer.h"

#include <gtest/gtest.h>

#include "masks/gradcheck.h"
#include "support/expect_error.h"

namespace topomask::testing {
namespace {

TEST(ParticleRenderer, StartsFromItsSeedAndRendersWithItsWeights) {
  RendererOptions options;
  options.features = 5;
  options.hidden = 8;
  ParticleRenderer renderer(options, 3), same(options, 3), other(options, 4);
  const auto parameters = renderer->named_parameters();
  EXPECT_EQ(parameters.size(), 10u);
  EXPECT_EQ(parameters["trunk1.weight"].sizes(), (at::IntArrayRef{8, 24}));
  EXPECT_EQ(parameters["colour1.weight"].sizes(), (at::IntArrayRef{8, 11}));
  for (const auto& parameter : parameters) {
    EXPECT_TRUE(at::equal(parameter.value(), same->named_parameters()[parameter.key()]));
    EXPECT_FALSE(at::equal(parameter.value(), other->named_parameters()[parameter.key()]));
    EXPECT_LE(parameter.value().abs().max().item<double>(), 1 / std::sqrt(8.0));
  }
  const at::Tensor positions = .05 * oracle::test_values({1, 50, 3}, 1).to(at::kFloat),
                   features = oracle::test_values({1, 50, 5}, 2).to(at::kFloat);
  const at::Tensor origins = at::tensor({1.f, 0.f, 0.f}).view({1, 1, 3}),
                   directions = at::tensor({-1.f, 0.f, 0.f}).view({1, 1, 3});
  const Rendered seen = renderer(positions, features, origins, directions);
  EXPECT_GT(seen.opacity.item<double>(), .1);
  EXPECT_NEAR(seen.depth.item<double>(), 1, .5);
  const Rendered plain =
      render_particles(positions, features, origins, directions, renderer->weights(), options);
  EXPECT_TRUE(at::equal(seen.colour, plain.colour));
  seen.colour.sum().backward();
  for (const at::Tensor& parameter : renderer->parameters())
    EXPECT_GT(parameter.grad().abs().max().item<double>(), 0);
  options.hidden = 0;
  expect_error([&] { ParticleRenderer bad(options); }, "hidden must be 1 to 65536, got 0");
}

}  // namespace
}  // namespace topomask::testing
