#include "topomask/interlacer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_error.h"
#include "support/gradients.h"

namespace topomask {
namespace {

using testing::expect_error;

constexpr LocalLayer kLocals[] = {LocalLayer::grf, LocalLayer::message_passing, LocalLayer::none,
                                  LocalLayer::softmax};

InterlacerOptions small_options(LocalLayer local) {
  InterlacerOptions o;
  o.features = 3;
  o.width = 8;
  o.layers = 2;
  o.heads = 2;
  o.mlp = 12;
  o.local = local;
  o.anchor_every = 4;
  o.anchor_neighbours = 5;
  o.bands = 2;
  o.seed = 3;
  return o;
}

// Positions within a few decimetres, so that octaves and neighbours are well spread.
at::Tensor numbers(at::IntArrayRef sizes, std::uint64_t seed, at::ScalarType dtype = at::kDouble) {
  at::Tensor values = at::empty(sizes, at::kFloat);
  fill_uniform(values, .3, seed, "numbers");
  return values.to(dtype);
}

ParticleScene small_scene(std::int64_t clouds, std::int64_t particles, at::ScalarType dtype = at::kDouble) {
  const at::Tensor robot = numbers({clouds, 3, 2, 3}, 5, dtype);
  return {numbers({clouds, particles, 3}, 1, dtype),
          numbers({clouds, particles, 3}, 2, dtype),
          numbers({clouds, 4, 3}, 3, dtype),
          numbers({clouds, 4, 3}, 4, dtype),
          robot,
          robot_features(robot, numbers({clouds, 3, 2}, 6, dtype))};
}

// The head starts at 0: without other weights all answers are.
Interlacer awake(const InterlacerOptions& options) {
  Interlacer model(options);
  fill_uniform(model->named_parameters()["head.weight"], .5, 9, "head");
  model->to(at::kDouble);
  return model;
}

// W = A / k of the k nearest, by brute force: [M, M] float64.
at::Tensor dense_steps(const at::Tensor& points, std::int64_t k) {
  at::Tensor distance = (points.unsqueeze(0) - points.unsqueeze(1)).square().sum(-1);
  distance.fill_diagonal_(1e9);
  const at::Tensor near = std::get<1>(distance.topk(k, -1, /*largest=*/false));
  return at::zeros_like(distance).scatter_(1, near, 1.0 / static_cast<double>(k));
}

TEST(CloudGeometry, MaskIsThePowerSeriesOfNearestNeighboursInEachCloud) {
  const at::Tensor points = numbers({2, 20, 3}, 7);
  const InterlacerOptions o = small_options(LocalLayer::grf);
  const CloudGeometry geometry(points, o);
  const std::vector<double> f = {.9, -.4, .3, .2};
  const at::Tensor mask =
      geometry.grf->with_f(at::tensor(f, at::kDouble).unsqueeze(0))->dense(at::kDouble)[0];
  EXPECT_TRUE(geometry.grf->features().query.exact);  // all 27 walks, no sampling
  at::Tensor expected = at::zeros({40, 40}, at::kDouble);
  for (std::int64_t cloud = 0; cloud < 2; ++cloud) {
    const at::Tensor w = dense_steps(points[cloud], 3);
    at::Tensor power = at::eye(20, at::kDouble), sum = at::zeros_like(w);
    for (const double term : f) {
      sum += term * power;
      power = power.matmul(w);
    }
    expected.narrow(0, 20 * cloud, 20).narrow(1, 20 * cloud, 20).copy_(sum);
  }
  EXPECT_LT((mask - expected).abs().max().item<double>(), 1e-6);
}

// The expectation of repelling walkers, which need no longer take every walk once where 27 becomes 9.
TEST(CloudGeometry, EnumerationIsTheMeanOfWalkers) {
  const at::Tensor points = numbers({1, 12, 3}, 8);
  const CloudGeometry geometry(points, small_options(LocalLayer::grf));
  const at::Tensor f = at::tensor({1.0, .8, .6, .4}, at::kDouble).unsqueeze(0);
  const at::Tensor exact = geometry.grf->with_f(f)->dense(at::kDouble)[0];
  const Graph graph = Graph::from_dense(dense_steps(points[0], 3));
  FeatureOptions options;
  options.ensembles = Ensembles::asymmetric;
  options.walks.num_walks = 4;
  options.walks.max_hops = 3;
  options.walks.length = LengthLaw::fixed;
  options.walks.coupling = Coupling::repelling;
  constexpr int kRepetitions = 400;
  std::vector<at::Tensor> samples;
  for (int i = 0; i < kRepetitions; ++i) {
    options.walks.seed = static_cast<std::uint64_t>(i);
    samples.push_back(GrfMask(graph, options, f).dense(at::kDouble)[0]);
  }
  const at::Tensor all = at::stack(samples);
  const at::Tensor error = (all.mean(0) - exact).abs(), standard = all.std(0) / std::sqrt(1.0 * kRepetitions);
  EXPECT_TRUE((error <= 4.5 * standard + 1e-6).all().item<bool>());
}

TEST(CloudGeometry, AnchorsHearTheirNearestTokens) {
  const at::Tensor points = numbers({2, 10, 3}, 9);
  const CloudGeometry geometry(points, small_options(LocalLayer::message_passing));
  ASSERT_EQ(geometry.anchors.size(0), 6);  // tokens 0, 4 and 8 of each cloud
  const at::Tensor flat = points.view({20, 3});
  for (std::int64_t a = 0; a < 6; ++a) {
    const std::int64_t cloud = a / 3, token = geometry.anchors[a].item<std::int64_t>();
    EXPECT_EQ(token, 10 * cloud + 4 * (a % 3));
    const at::Tensor distance = (points[cloud] - flat[token]).square().sum(-1);
    const at::Tensor near = std::get<1>(distance.topk(5, 0, false)) + 10 * cloud;
    EXPECT_TRUE(std::get<0>(geometry.heard[a].sort()).equal(std::get<0>(near.sort())));
    const at::Tensor offset = flat[geometry.heard[a][2].item<std::int64_t>()] - flat[token];
    EXPECT_TRUE(at::allclose(geometry.offsets[a][2].narrow(0, 0, 3), 20 * offset));
    EXPECT_NEAR(geometry.offsets[a][2][3].item<double>(), 20 * offset.norm().item<double>(), 1e-12);
  }
  for (std::int64_t t = 0; t < 20; ++t) {
    const std::int64_t cloud = t / 10;
    const at::Tensor own = flat.index_select(0, geometry.anchors.narrow(0, 3 * cloud, 3));
    EXPECT_EQ(geometry.nearest[t].item<std::int64_t>(),
              3 * cloud + (own - flat[t]).square().sum(-1).argmin().item<std::int64_t>());
  }
}

// Token by token, with the concatenations that the layer avoids.
TEST(MessagePassing, EqualsAnOracle) {
  const at::Tensor points = numbers({2, 10, 3}, 10), x = numbers({2, 10, 6}, 11);
  const CloudGeometry geometry(points, small_options(LocalLayer::message_passing));
  MessagePassing layer(6);
  initialise_fan_in(*layer, 4);
  layer->to(at::kDouble);
  const auto parameters = layer->named_parameters();
  const auto two = [&](const std::string& name, const at::Tensor& input) {
    const auto linear = [&](const std::string& part, const at::Tensor& v) {
      return parameters[part + ".weight"].matmul(v) + parameters[part + ".bias"];
    };
    return linear(name + "2", at::gelu(linear(name + "1", input)));
  };
  const at::Tensor tokens = x.view({20, 6});
  std::vector<at::Tensor> told;
  for (std::int64_t a = 0; a < 6; ++a) {
    const at::Tensor own = tokens[geometry.anchors[a].item<std::int64_t>()];
    at::Tensor message = at::zeros({6}, at::kDouble);
    for (std::int64_t k = 0; k < 5; ++k)
      message +=
          two("edge",
              at::cat({own, tokens[geometry.heard[a][k].item<std::int64_t>()], geometry.offsets[a][k]})) /
          5;
    told.push_back(own + two("node", at::cat({own, message})));
  }
  const at::Tensor out = layer->forward(x, geometry).view({20, 6});
  for (std::int64_t t = 0; t < 20; ++t) {
    const at::Tensor& anchor = told[static_cast<std::size_t>(geometry.nearest[t].item<std::int64_t>())];
    EXPECT_TRUE(
        at::allclose(out[t], two("back", at::cat({tokens[t], anchor, geometry.back[t]})), 1e-10, 1e-12));
  }
}

TEST(Interlacer, MovesNothingAtTheStart) {
  Interlacer model(small_options(LocalLayer::grf));
  const ParticleUpdate update = model->forward(small_scene(2, 9, at::kFloat));
  EXPECT_EQ(update.positions.sizes(), (std::vector<std::int64_t>{2, 9, 3}));
  EXPECT_EQ(update.features.sizes(), (std::vector<std::int64_t>{2, 9, 3}));
  EXPECT_EQ(update.positions.abs().max().item<double>(), 0);
  EXPECT_EQ(update.features.abs().max().item<double>(), 0);
}

class EveryLocalLayer : public ::testing::TestWithParam<LocalLayer> {};

// As oracle::expect_gradients, with steps that do not reach the kinks of ReLU features.
void expect_gradients_nearby(const std::vector<at::Tensor>& leaves, const std::function<at::Tensor()>& loss) {
  const oracle::OneThread one_thread;
  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss()}, leaves);
  constexpr double kStep = 1e-6;
  const at::NoGradGuard no_grad;
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    const at::Tensor flat = leaves[k].detach().view({-1}), gradient = gradients[k].reshape({-1});
    for (std::int64_t e = 0; e < flat.numel(); ++e) {
      const double value = flat[e].item<double>();
      flat[e] = value + kStep;
      const double above = loss().item<double>();
      flat[e] = value - kStep;
      const double expected = (above - loss().item<double>()) / (2 * kStep);
      flat[e] = value;
      EXPECT_NEAR(gradient[e].item<double>(), expected, 1e-7 * std::max(1.0, std::abs(expected)))
          << "tensor " << k << ", element " << e;
    }
  }
}

TEST_P(EveryLocalLayer, GradientsAgreeWithFiniteDifferences) {
  InterlacerOptions o = small_options(GetParam());
  o.layers = 1;
  o.width = 4;
  o.mlp = 4;
  o.bands = 1;
  Interlacer model = awake(o);
  const ParticleScene scene = small_scene(1, 7);
  std::vector<at::Tensor> leaves = model->parameters();
  scene.features.requires_grad_();
  leaves.push_back(scene.features);
  // Positions too: the graph stays as it is under steps this small.
  scene.positions.requires_grad_();
  leaves.push_back(scene.positions);
  const at::Tensor weights = numbers({1, 7, 6}, 12);
  expect_gradients_nearby(leaves, [&] {
    const ParticleUpdate update = model->forward(scene);
    return (at::cat({update.positions, update.features}, -1) * weights).sum();
  });
}

// Particles have no order. Anchors do: of message passing they stay where they are.
TEST_P(EveryLocalLayer, FollowsAPermutationOfParticles) {
  Interlacer model = awake(small_options(GetParam()));
  ParticleScene scene = small_scene(2, 12);
  const ParticleUpdate before = model->forward(scene);
  const at::Tensor order = at::tensor(std::vector<std::int64_t>{8, 3, 1, 2, 0, 7, 5, 6, 4, 9, 11, 10});
  scene.positions = scene.positions.index_select(1, order);
  scene.features = scene.features.index_select(1, order);
  const ParticleUpdate after = model->forward(scene);
  EXPECT_GT(before.positions.abs().max().item<double>(), 1e-3);
  EXPECT_TRUE(at::allclose(after.positions, before.positions.index_select(1, order), 1e-9, 1e-12));
  EXPECT_TRUE(at::allclose(after.features, before.features.index_select(1, order), 1e-9, 1e-12));
}

TEST_P(EveryLocalLayer, CloudsOfABatchDoNotMeet) {
  Interlacer model = awake(small_options(GetParam()));
  const ParticleScene scene = small_scene(3, 9);
  const ParticleUpdate all = model->forward(scene);
  const auto one = [](const at::Tensor& x) { return x.narrow(0, 1, 1); };
  const ParticleUpdate alone =
      model->forward({one(scene.positions), one(scene.features), one(scene.past_positions),
                      one(scene.past_features), one(scene.robot_positions), one(scene.robot_features)});
  EXPECT_TRUE(at::allclose(one(all.positions), alone.positions, 1e-9, 1e-12));
}

TEST_P(EveryLocalLayer, TakesACloudAlone) {
  Interlacer model = awake(small_options(GetParam()));
  const ParticleScene scene = small_scene(1, 12);
  const ParticleUpdate update = model->forward({scene.positions, scene.features, {}, {}, {}, {}});
  EXPECT_LE(update.positions.abs().max().item<double>(), kLargestStep);
  EXPECT_TRUE(update.positions.isfinite().all().item<bool>());
}

// The same whatever the local layers are.
TEST_P(EveryLocalLayer, AnEmptyBatchGivesAnEmptyResult) {
  Interlacer model = awake(small_options(GetParam()));
  ParticleScene scene = small_scene(0, 12);
  for (const bool alone : {false, true}) {
    if (alone) scene = {scene.positions, scene.features, {}, {}, {}, {}};
    const ParticleUpdate update = model->forward(scene);
    EXPECT_EQ(update.positions.sizes(), (std::vector<std::int64_t>{0, 12, 3}));
    EXPECT_EQ(update.features.sizes(), (std::vector<std::int64_t>{0, 12, 3}));
    (update.positions.sum() + update.features.sum()).backward();
  }
}

TEST_P(EveryLocalLayer, RefusesFloat16OnACpu) {
  Interlacer model = awake(small_options(GetParam()));
  model->to(at::kHalf);
  expect_error([&] { model->forward(small_scene(1, 12, at::kHalf)); },
               "expected float32, float64, bfloat16 or, on a GPU, float16, got Half on cpu");
}

TEST_P(EveryLocalLayer, RefusesPositionsThatAreNotFinite) {
  Interlacer model = awake(small_options(GetParam()));
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const bool robot : {false, true}) {
      const ParticleScene scene = small_scene(2, 9);
      (robot ? scene.robot_positions : scene.positions).view({-1})[4] = bad;
      expect_error([&] { model->forward(scene); }, "Interlacer: a position holds a NaN or an infinity");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Locals, EveryLocalLayer, ::testing::ValuesIn(kLocals),
                         [](const auto& instance) { return std::string(word_of(instance.param)); });

TEST(Interlacer, SymmetricFeaturesAndOtherReach) {
  InterlacerOptions o = small_options(LocalLayer::grf);
  o.ensembles = Ensembles::shared;
  o.neighbours = 2;
  o.hops = 2;
  Interlacer model = awake(o);
  const ParticleUpdate update = model->forward(small_scene(2, 9));
  EXPECT_TRUE(update.positions.isfinite().all().item<bool>());
  const CloudGeometry geometry(small_scene(2, 9).positions, o);
  const at::Tensor mask = geometry.grf->dense(at::kDouble)[0];
  EXPECT_TRUE(at::allclose(mask, mask.t()));
}

TEST(Interlacer, RobotFeaturesAreDisplacementsAndGrip) {
  at::Tensor points = at::zeros({1, 3, 1, 3}, at::kDouble);
  points[0][1][0][0] = .1;
  points[0][2][0][1] = .2;
  const at::Tensor f = robot_features(points, at::full({1, 3, 1}, .04, at::kDouble))[0];
  const std::vector<double> middle = {1, 0, 0, -1, 2, 0, .4};
  EXPECT_TRUE(at::allclose(f[1][0], at::tensor(middle, at::kDouble)));
  EXPECT_TRUE(at::allclose(f[0][0], at::tensor(std::vector<double>{1, 0, 0, 1, 0, 0, .4}, at::kDouble)));
}

TEST(Interlacer, SaysWhatIsWrong) {
  Interlacer model(small_options(LocalLayer::grf));
  ParticleScene scene = small_scene(1, 9, at::kFloat);
  scene.features = scene.features.narrow(2, 0, 2);
  expect_error([&] { model->forward(scene); }, {"features [B, N, 3]", "[1, 9, 2]"});
  scene = small_scene(1, 9, at::kFloat);
  scene.robot_features = scene.robot_features.narrow(3, 0, 6);
  expect_error([&] { model->forward(scene); }, {"robot positions [1, 3, K, 3]", "[1, 3, 2, 6]"});
  InterlacerOptions o = small_options(LocalLayer::grf);
  o.hops = 9;
  expect_error([&] { Interlacer{o}; }, "3 neighbours and 9 hops");
  o = small_options(LocalLayer::none);
  o.heads = 3;
  expect_error([&] { Interlacer{o}; }, "must divide the width 8, got 3");
}

}  // namespace
}  // namespace topomask
