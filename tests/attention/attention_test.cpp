// Every engine against a dense float64 oracle, for every mask, kind, shape and dtype; gradients by finite
// differences.
#include "topomask/attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/expect_error.h"
#include "support/gradients.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_spec.h"
#include "topomask/grf_mask.h"
#include "topomask/mask_combinators.h"
#include "topomask/masks.h"

namespace topomask {
namespace {

using testing::expect_error;

using oracle::expect_gradients;

// Eq. 2 and 7 word for word. q, k: [B, H, N, m] features (linear) or raw (softmax); mask: [1 or H, N, N].
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& mask, bool softmax) {
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1));
  if (softmax) scores = (scores / std::sqrt(static_cast<double>(q.size(-1)))).exp();
  const at::Tensor weights = scores * mask;
  return at::matmul(weights, v) / weights.sum(-1, true);
}

struct NamedGraph {
  std::string name;
  Graph graph;
};

std::vector<NamedGraph> graphs() {
  const Graph directed =
      Graph::from_csr({{0, 2, 3, 5, 5, 6}, {1, 2, 2, 0, 4, 4}, {0.5f, 0.25f, 0.75f, 0.5f, 0.4f, 0.3f}}, true);
  return {{"grid", normalise(grid_graph({6, 5}), Normalisation::symmetric)},
          {"knn", normalise(knn_graph(at::rand({40, 3}), {4, true}), Normalisation::symmetric)},
          {"ba", normalise(barabasi_albert(50, 3, 1), Normalisation::symmetric)},
          {"directed", directed},
          {"isolated", normalise(erdos_renyi(30, 0.03, 5), Normalisation::symmetric)},
          {"single", path_graph(1)}};
}

std::vector<MaskPtr> masks(const Graph& graph, std::int64_t heads) {
  FeatureOptions options;
  options.walks.num_walks = 8;
  options.walks.max_hops = 4;
  options.walks.p_halt = 0.3;
  const at::Tensor f = at::rand({heads, 5}, at::kDouble) * 0.5 + 0.1;
  std::vector<MaskPtr> result;
  result.push_back(std::make_shared<GrfMask>(graph, options, f));
  result.push_back(GrfMask::per_head(graph, options, f));
  options.ensembles = Ensembles::independent;
  result.push_back(std::make_shared<GrfMask>(graph, options, f));
  options.ensembles = Ensembles::asymmetric;
  result.push_back(std::make_shared<GrfMask>(graph, options, f[0]));
  options.importance_weights = false;
  options.ensembles = Ensembles::shared;
  result.push_back(std::make_shared<GrfMask>(graph, options, f));
  result.push_back(std::make_shared<PowerSeriesMask>(graph, f));
  result.push_back(std::make_shared<NoMask>(graph.num_nodes()));
  result.push_back(std::make_shared<NeighbourMask>(graph, 1, true));
  result.push_back(std::make_shared<CausalMask>(graph.num_nodes()));
  return result;
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  return ((actual.to(at::kDouble) - expected).norm() / expected.norm().clamp_min(1e-30)).item<double>();
}

bool admits(const Mask& mask, Engine engine, bool softmax) {
  if (engine == Engine::mask) return mask.profile().sparse();
  return engine != Engine::feature || !softmax;
}

struct Case {
  AttentionKind kind;
  Engine engine;
  at::ScalarType dtype;
};

class Engines : public ::testing::TestWithParam<Case> {};

TEST_P(Engines, AgreeWithTheOracle) {
  const auto [kind, engine, dtype] = GetParam();
  const bool softmax = kind == AttentionKind::softmax;
  const double tolerance = dtype == at::kDouble ? 1e-10 : dtype == at::kFloat ? 1e-5 : 1e-2;
  at::manual_seed(3);
  for (const NamedGraph& g : graphs()) {
    const std::int64_t n = g.graph.num_nodes();
    for (const std::int64_t batch : {1, 3}) {
      const at::Tensor q = at::randn({batch, 2, n, 9}, at::kDouble),
                       k = at::randn({batch, 2, n, 9}, at::kDouble);
      const at::Tensor v = at::randn({batch, 2, n, 7}, at::kDouble);
      for (const MaskPtr& mask : masks(g.graph, 2)) {
        if (engine != Engine::automatic && !admits(*mask, engine, softmax)) continue;
        AttentionOptions options;
        options.kind = kind;
        options.engine = engine;
        const auto in = [&](const at::Tensor& x) { return x.to(dtype); };
        const auto seen = [&](const at::Tensor& x) { return in(x).to(at::kDouble); };
        const at::Tensor fq = softmax ? seen(q) : at::relu(seen(q)) + 1e-3;
        const at::Tensor fk = softmax ? seen(k) : at::relu(seen(k)) + 1e-3;
        const at::Tensor expected = plain_attention(fq, fk, seen(v), mask->dense(at::kDouble), softmax);
        const at::Tensor out = attention(in(q), in(k), in(v), mask, options);
        EXPECT_EQ(out.scalar_type(), dtype);
        EXPECT_LE(relative_error(out, expected), tolerance)
            << g.name << " " << mask->name() << " batch " << batch;
      }
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const AttentionKind kind : {AttentionKind::linear, AttentionKind::softmax}) {
    for (const Engine engine : {Engine::automatic, Engine::dense, Engine::feature, Engine::mask}) {
      if (kind == AttentionKind::softmax && engine == Engine::feature) continue;
      for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
        cases.push_back({kind, engine, dtype});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, Engines, ::testing::ValuesIn(all_cases()));

class Gradients : public ::testing::TestWithParam<Case> {};

TEST_P(Gradients, MatchFiniteDifferences) {
  const auto [kind, engine, dtype] = GetParam();
  at::manual_seed(5);
  const Graph graph = normalise(grid_graph({3, 2}), Normalisation::symmetric);
  const std::int64_t n = graph.num_nodes();
  const at::Tensor q = at::rand({2, 2, n, 3}, dtype), k = at::rand({2, 2, n, 3}, dtype),
                   v = at::randn({2, 2, n, 4}, dtype);
  const at::Tensor weight = at::randn({2, 2, n, 4}, dtype);
  AttentionOptions options;
  options.kind = kind;
  options.engine = engine;
  FeatureOptions features;
  features.walks.num_walks = 6;
  features.walks.max_hops = 3;
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    features.ensembles = ensembles;
    const at::Tensor f = at::rand({2, 4}, dtype) + 0.2;
    const auto shared = std::make_shared<GrfMask>(graph, features, f);
    const auto own = GrfMask::per_head(graph, features, f);
    for (const auto& base : {shared, own}) {
      expect_gradients(
          [&](const auto& in) {
            const auto mask = base->with_f(in[3]);
            return (attention(in[0], in[1], in[2], mask, options) * weight).sum();
          },
          {q, k, v, f});
    }
    // One row of f for both heads.
    expect_gradients(
        [&](const auto& in) {
          const auto mask = shared->with_f(in[3]);
          return (attention(in[0], in[1], in[2], mask, options) * weight).sum();
        },
        {q, k, v, f[0].clone()});
  }
  if (engine != Engine::mask) {
    expect_gradients(
        [&](const auto& in) {
          const auto mask = std::make_shared<PowerSeriesMask>(graph, in[3]);
          return (attention(in[0], in[1], in[2], mask, options) * weight).sum();
        },
        {q, k, v, at::rand({2, 3}, dtype)});
  }
}

std::vector<Case> gradient_cases() {
  std::vector<Case> cases;
  for (const Case& c : all_cases()) {
    if (c.dtype == at::kDouble && c.engine != Engine::automatic) cases.push_back(c);
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, Gradients, ::testing::ValuesIn(gradient_cases()));

TEST(Attention, AcceptsPackedExpandedAndStridedInputs) {
  const Graph graph = normalise(grid_graph({4, 4}), Normalisation::symmetric);
  const auto mask = std::make_shared<GrfMask>(graph, FeatureOptions{}, at::ones({3}));
  const at::Tensor q = at::randn({16, 2, 5}), k = at::randn({16, 2, 5}), v = at::randn({16, 2, 6});
  const auto batched = [](const at::Tensor& x) { return x.permute({1, 0, 2}).unsqueeze(0); };
  const at::Tensor expected = attention(batched(q), batched(k), batched(v), mask);
  EXPECT_TRUE(at::allclose(batched(attention(q, k, v, mask)), expected, 1e-5, 1e-6));
  const at::Tensor expanded = batched(q).expand({3, 2, 16, 5});
  const at::Tensor out =
      attention(expanded, batched(k).expand({3, 2, 16, 5}), batched(v).expand({3, 2, 16, 6}), mask);
  EXPECT_TRUE(at::allclose(out[2], expected[0], 1e-5, 1e-6));
  const at::Tensor wide = at::randn({1, 2, 16, 10});
  const at::Tensor strided = wide.slice(3, 0, 10, 2);
  EXPECT_FALSE(strided.is_contiguous());
  EXPECT_TRUE(at::allclose(attention(strided, batched(k), batched(v), mask),
                           attention(strided.contiguous(), batched(k), batched(v), mask)));
}

// Results of 4 MB and more go past the caches, by stores of their own. Half as many channels of v are less
// than that and run in another loop: together they must give the same.
TEST(Attention, LargeResultsAreThoseOfTheirHalves) {
  const Graph graph = normalise(grid_graph({130, 130}), Normalisation::symmetric);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor f = at::rand({4}, dtype).set_requires_grad(true);
    const auto mask = std::make_shared<GrfMask>(graph, FeatureOptions{}, f);
    const auto input = [&] { return at::randn({1, 1, 16900, 64}, dtype).set_requires_grad(true); };
    const at::Tensor q = input(), k = input(), v = input();
    const at::Tensor grad = at::randn({1, 1, 16900, 64}, dtype);
    AttentionOptions options;
    options.engine = Engine::mask;
    const std::vector<at::Tensor> inputs = {q, k, v, f};
    const at::Tensor whole = attention(q, k, v, mask, options);
    const auto whole_grads = torch::autograd::grad({whole}, inputs, {grad});
    const std::int64_t channels = dtype == at::kFloat ? 32 : 16;
    std::vector<at::Tensor> parts;
    for (std::int64_t c = 0; c < 64; c += channels) {
      parts.push_back(attention(q, k, v.slice(3, c, c + channels), mask, options));
    }
    const at::Tensor joined = at::cat(parts, 3);
    const auto joined_grads = torch::autograd::grad({joined}, inputs, {grad});
    const double tolerance = dtype == at::kFloat ? 1e-5 : 1e-12;
    EXPECT_LT(relative_error(whole, joined), tolerance) << dtype;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_LT(relative_error(whole_grads[i], joined_grads[i]), tolerance) << dtype << ", input " << i;
    }
  }
}

TEST(Attention, GuardsRowsWithoutANormaliser) {
  // ReLU without epsilon: a negative query has no features, so every score of its row is zero.
  const Graph graph = path_graph(3);
  for (const Engine engine : {Engine::dense, Engine::feature, Engine::mask}) {
    const auto mask = std::make_shared<GrfMask>(graph, FeatureOptions{}, at::ones({3}, at::kDouble));
    at::Tensor q = at::ones({1, 1, 3, 2}, at::kDouble);
    q[0][0][1] = -1;
    q.requires_grad_(true);
    at::Tensor v = at::rand({1, 1, 3, 2}, at::kDouble).requires_grad_(true);
    AttentionOptions options;
    options.engine = engine;
    options.feature_map.epsilon = 0;
    const at::Tensor out = attention(q, at::ones({1, 1, 3, 2}, at::kDouble), v, mask, options);
    EXPECT_EQ(out[0][0][1].abs().sum().item<double>(), 0);
    EXPECT_GT(out[0][0][0].abs().sum().item<double>(), 0);
    out.sum().backward();
    EXPECT_TRUE(q.grad().isfinite().all().item<bool>());
    EXPECT_TRUE(v.grad().isfinite().all().item<bool>());
    EXPECT_EQ(q.grad()[0][0][1].abs().sum().item<double>(), 0);
  }
}

TEST(Attention, SoftmaxSurvivesLargeLogits) {
  const Graph graph = normalise(grid_graph({3, 3}), Normalisation::symmetric);
  const auto mask = std::make_shared<GrfMask>(graph, FeatureOptions{}, at::tensor({1.0, 0.5}, at::kDouble));
  const at::Tensor q = 300 * at::randn({1, 1, 9, 4}, at::kDouble), v = at::rand({1, 1, 9, 2}, at::kDouble);
  for (const Engine engine : {Engine::dense, Engine::mask}) {
    AttentionOptions options;
    options.kind = AttentionKind::softmax;
    options.engine = engine;
    const at::Tensor out = attention(q, q, v, mask, options);
    EXPECT_TRUE(out.isfinite().all().item<bool>());
    EXPECT_LE(out.max().item<double>(), 1.0 + 1e-12);
  }
}

TEST(FeatureMaps, ComputeWhatTheySay) {
  const at::Tensor x = at::randn({2, 5, 4}, at::kDouble);
  FeatureMap map;
  EXPECT_TRUE(at::equal(map(x, true), at::relu(x) + 1e-3));
  map.kind = FeatureMapKind::elu1;
  EXPECT_TRUE(at::equal(map(x, true), at::elu(x) + 1));
  map.kind = FeatureMapKind::squared_relu;
  EXPECT_TRUE(at::equal(map(x, true), at::relu(x).square() + 1e-3));
  map.kind = FeatureMapKind::identity;
  EXPECT_TRUE(at::equal(map(x, true), x));
}

TEST(FeatureMaps, RoundThoseOfSixteenBitsOnce) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({2, 3, 7, 4}).to(at::kBFloat16), weights = at::randn({2, 3, 7, 16});
  for (const FeatureMapKind kind : {FeatureMapKind::identity, FeatureMapKind::relu, FeatureMapKind::elu1,
                                    FeatureMapKind::squared_relu, FeatureMapKind::favor}) {
    for (const bool is_query : {true, false}) {
      SCOPED_TRACE(::testing::Message() << word_of(kind) << (is_query ? " of queries" : " of keys"));
      const FeatureMap map = {.kind = kind, .num_features = 16};
      const at::Tensor narrow = x.detach().clone().requires_grad_(true);
      const at::Tensor wide = x.to(at::kFloat).requires_grad_(true);
      const at::Tensor of_narrow = map(narrow, is_query), of_wide = map(wide, is_query);
      EXPECT_TRUE(at::equal(of_narrow, of_wide.to(at::kBFloat16)));
      const at::Tensor own = weights.slice(-1, 0, of_wide.size(-1));
      (of_narrow * own.to(at::kBFloat16)).sum().backward();
      (of_wide * own).sum().backward();
      const at::Tensor error = (narrow.grad().to(at::kFloat) - wide.grad()).norm();
      EXPECT_LE(error.item<double>(), 0.01 * wide.grad().norm().item<double>());
    }
  }
}

// What the backward pass writes down, against what autograd makes of the formula; of the keys of one graph
// and of two, whose largest exponents differ. Those count as constants.
TEST(FeatureMaps, FavorHasTheGradientOfItsFormula) {
  at::manual_seed(4);
  const FeatureMap map = {.kind = FeatureMapKind::favor, .num_features = 6, .seed = 2};
  const at::Tensor weights = at::randn({2, 5, 6}, at::kDouble);
  const auto gradient = [](at::Tensor x, const auto& features_of, const at::Tensor& own) {
    x = x.detach().clone().requires_grad_(true);
    (features_of(x) * own).sum().backward();
    return x.grad();
  };
  const at::Tensor x = at::randn({2, 5, 4}, at::kDouble), zero = at::zeros({1, 4}, at::kDouble);
  std::vector<at::Tensor> columns;  // of the projection, from the features of unit vectors u
  for (std::int64_t axis = 0; axis < 4; ++axis) {
    const at::Tensor unit = zero.clone();
    unit[0][axis] = 1;
    // phi(u) / phi(-u) = exp(2 <w, u>): among keys both have the same other factors.
    const at::Tensor both = map(at::cat({unit, -unit}), false).log();
    columns.push_back((both[0] - both[1]) / 2);
  }
  const at::Tensor projection = at::stack(columns, -1);  // [features, d]
  const auto exponents = [&](const at::Tensor& rows, bool is_query) {
    const at::Tensor projected = at::matmul(rows, projection.t());
    return is_query ? projected : projected - rows.square().sum(-1, true) / 4;  // 2 sqrt(d)
  };
  for (const std::vector<std::int64_t>& blocks : {std::vector<std::int64_t>{}, {0, 2, 5}}) {
    for (const bool is_query : {true, false}) {
      const auto formula = [&](const at::Tensor& rows) {
        const at::Tensor constant =
            exponents(rows, is_query).detach() - map(rows, is_query, blocks).detach().log();
        return (exponents(rows, is_query) - constant).exp();
      };
      const auto ours = [&](const at::Tensor& rows) { return map(rows, is_query, blocks); };
      EXPECT_TRUE(at::allclose(gradient(x, ours, weights), gradient(x, formula, weights), 1e-9, 1e-12))
          << (is_query ? "queries" : "keys") << " of " << blocks.size() << " bounds";
    }
  }
}

// Averaged over seeds, FAVOR+ attention weights approach softmax: the estimate of exp(q.k/sqrt d) is
// unbiased, up to the stabilising factors, which are constant per query and over all keys.
TEST(FeatureMaps, FavorEstimatesTheSoftmaxKernel) {
  at::manual_seed(1);
  const at::Tensor q = 0.5 * at::randn({1, 6, 4}, at::kDouble), k = 0.5 * at::randn({1, 6, 4}, at::kDouble);
  const at::Tensor exact = (at::matmul(q, k.transpose(-2, -1)) / 2.0).exp();
  FeatureMap map;
  map.kind = FeatureMapKind::favor;
  map.num_features = 1024;
  std::vector<at::Tensor> ratios;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    map.seed = seed;
    const at::Tensor estimate = at::matmul(map(q, true), map(k, false).transpose(-2, -1));
    const at::Tensor ratio = estimate / exact;  // constant along each row
    ratios.push_back(ratio / ratio.mean(-1, true));
  }
  const at::Tensor all = at::stack(ratios);
  const at::Tensor se = all.std(0) / std::sqrt(20.0);
  EXPECT_LE(((all.mean(0) - 1).abs() / se).max().item<double>(), 4.5);
  EXPECT_LE(all.std(0).max().item<double>(), 0.1);
}

// A packed batch of graphs is each of them alone, whatever the size of another graph's keys.
TEST(FeatureMaps, FavorKeepsTheGraphsOfABatchApart) {
  at::manual_seed(2);
  const std::vector<std::int64_t> nodes = {5, 1, 7};
  const double sizes[] = {0.3, 30, 3};
  std::vector<MaskPtr> alone;
  std::vector<at::Tensor> q, k, v;
  for (std::size_t g = 0; g < nodes.size(); ++g) {
    const auto operand = [&](double size) { return size * at::randn({2, 2, nodes[g], 4}); };
    alone.push_back(std::make_shared<NeighbourMask>(path_graph(nodes[g]), 2));
    q.push_back(operand(sizes[g]));
    k.push_back(operand(sizes[g]));
    v.push_back(operand(1));
  }
  const MaskPtr batch = std::make_shared<BlockDiagonalMask>(alone);
  const MaskPtr twice = std::make_shared<SumMask>(std::vector<MaskPtr>{batch, batch});
  AttentionOptions options;
  options.feature_map.kind = FeatureMapKind::favor;
  options.feature_map.num_features = 16;
  for (const Engine engine : {Engine::mask, Engine::dense, Engine::feature}) {
    options.engine = engine;
    for (const MaskPtr& mask : {batch, twice}) {
      const at::Tensor packed = attention(at::cat(q, 2), at::cat(k, 2), at::cat(v, 2), mask, options);
      std::int64_t first = 0;
      for (std::size_t g = 0; g < nodes.size(); first += nodes[g++]) {
        const at::Tensor own = packed.slice(2, first, first + nodes[g]);
        // No row of the others was lost to the large one.
        if (g != 1) {
          EXPECT_GT(own.abs().amax(-1).min().item<double>(), 0) << "graph " << g;
        }
        EXPECT_TRUE(at::allclose(own, attention(q[g], k[g], v[g], alone[g], options), 1e-4, 1e-5))
            << "graph " << g << ", engine " << static_cast<int>(engine) << ", " << mask->name();
      }
    }
  }
  expect_error(
      [&] {
        options.feature_map(q[0], false, {0, 6});
      },
      "blocks must ascend from 0 to the 5 nodes of x, got 2 from 0 to 6");
  expect_error([&] { options.feature_map(q[0], false, {0, 4, 3, 5}); }, "blocks must ascend");
}

TEST(Attention, RejectsWhatDoesNotFit) {
  const Graph graph = grid_graph({3, 3});
  const MaskPtr mask = std::make_shared<GrfMask>(graph, FeatureOptions{}, at::ones({2, 3}));
  const at::Tensor x = at::randn({1, 2, 9, 4});
  expect_error(
      [&] {
        attention(x, x, at::randn({1, 2, 8, 4}), mask);
      },
      "q and v must agree in dimension 2, got 9 and 8");
  expect_error(
      [&] {
        attention(x, at::randn({1, 2, 9, 5}), x, mask);
      },
      "same number of channels, got 4 and 5");
  expect_error([&] { attention(x, x.to(at::kDouble), x, mask); }, "q and k must have one dtype");
  expect_error([&] { attention(x.to(at::kInt), x.to(at::kInt), x.to(at::kInt), mask); },
               "float32, float64, bfloat16 or, on a GPU, float16");
  expect_error([&] { attention(x[0][0], x[0][0], x[0][0], mask); }, "[B, H, N, d] or packed [N, H, d]");
  const at::Tensor longer = at::randn({1, 2, 10, 4});
  expect_error([&] { attention(longer, longer, longer, mask); }, "is for 9 nodes, q has 10");
  const at::Tensor three = at::randn({1, 3, 9, 4});
  expect_error([&] { attention(three, three, three, mask); }, "has 2 heads, q has 3");
  AttentionOptions options;
  options.check_finite = true;
  at::Tensor bad = x.clone();
  bad[0][0][0][0] = std::nan("");
  expect_error([&] { attention(x, bad, x, mask, options); }, "k holds a NaN or an infinity");
  options = {};
  options.kind = AttentionKind::softmax;
  options.engine = Engine::feature;
  expect_error([&] { attention(x, x, x, mask, options); }, "engine 'feature' cannot run this");
  options.kind = AttentionKind::linear;
  options.engine = Engine::mask;
  expect_error([&] { attention(x, x, x, std::make_shared<NoMask>(9), options); }, "has no sparse entries");
  options.engine = Engine::automatic;
  options.max_workspace = 10;
  expect_error([&] { attention(x, x, x, mask, options); }, "no engine fits");
}

TEST(Plan, PrefersTheMaskEngineOnLocalGraphsAndSaysWhy) {
  const Graph graph = normalise(grid_graph({100, 100}), Normalisation::symmetric);
  FeatureOptions options;
  options.walks.num_walks = 4;
  const GrfMask mask(graph, options, at::ones({5}));
  AttentionShape shape;
  shape.num_nodes = 10000;
  const AttentionPlan plan = plan_attention(mask, shape, {});
  EXPECT_EQ(plan.engine, Engine::mask);
  EXPECT_THAT(plan.to_string(), ::testing::HasSubstr("engine: mask"));
  EXPECT_EQ(plan.candidates.size(), 3u);
  for (const PlanCandidate& c : plan_attention(NoMask(10000), shape, {}).candidates) {
    if (c.engine == Engine::feature) {
      EXPECT_TRUE(c.admissible);
    }
    if (c.engine == Engine::mask) {
      EXPECT_FALSE(c.admissible);
    }
  }
}

// The predicted times lie within a factor of two of those measured on an H200.
TEST(Plan, KnowsWhatTheFeatureEngineTakesOnAGpu) {
  const auto predicted = [](const Graph& graph, int walks, double p_halt, std::int64_t batch,
                            std::int64_t heads, at::ScalarType dtype) {
    FeatureOptions options;
    options.walks.num_walks = walks;
    options.walks.p_halt = p_halt;
    const GrfMask mask(normalise(graph, Normalisation::symmetric), options, at::ones({11}));
    AttentionShape shape;
    shape.batch = batch;
    shape.heads = heads;
    shape.num_nodes = graph.num_nodes();
    shape.dtype = dtype;
    shape.device = c10::DeviceType::CUDA;
    for (const PlanCandidate& c : plan_attention(mask, shape, {}).candidates) {
      if (c.engine == Engine::feature) return c.predicted_cost;
    }
    return std::nan("");
  };
  // docs/performance.md has the measured times on the graph with hubs.
  const auto expect_within_two = [](double seconds, double measured) {
    EXPECT_LT(seconds, 2 * measured);
    EXPECT_GT(seconds, measured / 2);
  };
  const Graph torus = load_graph("torus:32768,8").graph, hubs = barabasi_albert(32768, 8, 0);
  expect_within_two(predicted(torus, 8, 0.5, 1, 8, at::kBFloat16), 0.95e-3);
  expect_within_two(predicted(hubs, 16, 0.1, 1, 1, at::kBFloat16), 1.34e-3);
  expect_within_two(predicted(hubs, 16, 0.1, 1, 1, at::kFloat), 4.57e-3);
}

// Entries of M grow as q, k and v do: they may take as much memory, unless a limit was asked for.
TEST(Plan, RulesOutNoSparseMaskForTheSizeOfTheGraph) {
  constexpr std::int64_t kNodes = std::int64_t{1} << 24;
  MaskProfile mask;
  mask.name = "many-entries";
  mask.num_nodes = kNodes;
  mask.entries = 30 * kNodes;
  mask.multiply_adds_per_column = 30.0 * kNodes;
  mask.bytes_per_column = 240.0 * kNodes;
  AttentionShape shape;
  shape.num_nodes = kNodes;
  shape.d = shape.d_v = 64;
  AttentionOptions options;
  const AttentionPlan plan = plan_attention(mask, shape, options);
  EXPECT_EQ(plan.engine, Engine::mask);
  EXPECT_EQ(plan.max_workspace, 4 * 4 * 64 * 4 * kNodes);
  options.max_workspace = std::int64_t{1} << 31;
  expect_error([&] { plan_attention(mask, shape, options); }, "max_workspace is 2.15e+09");
  shape.num_nodes = 100;
  EXPECT_EQ(plan_attention(NoMask(100), shape, {}).max_workspace, std::int64_t{1} << 31);
  options.max_workspace = -1;
  expect_error([&] { plan_attention(NoMask(100), shape, options); }, "expected at least 0 bytes, got -1");
}

TEST(Flops, AreWhatTheEnginesDo) {
  const Graph graph = normalise(path_graph(64), Normalisation::symmetric);
  FeatureOptions options;
  options.walks.num_walks = 4;
  const auto mask = std::make_shared<GrfMask>(graph, options, at::ones({11}));
  const std::int64_t nnz = mask->entries()[0].pattern->nnz();
  const at::Tensor x = at::randn({1, 1, 64, 8});
  AttentionOptions how;
  how.engine = Engine::mask;
  reset_attention_flops();
  attention(x, x, x, mask, how);
  const std::uint64_t products = attention_flops().multiply_adds;
  EXPECT_GE(products, static_cast<std::uint64_t>(nnz * 16));  // the fused pass, plus the values of M_hat
  EXPECT_LE(products, static_cast<std::uint64_t>(nnz * 16) + 64 * 64 * 16);
  how.engine = Engine::dense;
  reset_attention_flops();
  attention(x, x, x, std::make_shared<NoMask>(64), how);
  EXPECT_EQ(attention_flops().multiply_adds, 64u * 64 * 16);
}

}  // namespace
}  // namespace topomask
