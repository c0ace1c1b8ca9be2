#include "topomask/grf_mask.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "support/gradients.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"

namespace topomask {
namespace {

using oracle::expect_gradients;

Graph directed_graph() {
  return Graph::from_csr({{0, 2, 3, 5, 5, 6}, {1, 2, 2, 0, 4, 4}, {0.5f, -0.25f, 0.75f, 1.5f, -1.0f, 0.3f}},
                         true);
}

FeatureOptions options_for(Ensembles ensembles) {
  FeatureOptions options;
  options.walks.num_walks = 6;
  options.walks.max_hops = 3;
  options.walks.p_halt = 0.3;
  options.ensembles = ensembles;
  return options;
}

// Phi Psi^T from the dense features of each head.
at::Tensor dense_product(const GraphFeatures& features, const at::Tensor& f) {
  if (features.ensembles == Ensembles::asymmetric) return features.query.to_dense(f);
  return features.query.to_dense(f).mm(features.key.to_dense(f).t());
}

class GrfMasks : public ::testing::TestWithParam<Ensembles> {};

TEST_P(GrfMasks, AgreeWithTheProductOfTheirFeatures) {
  for (const Graph& graph :
       {normalise(grid_graph({4, 3}), Normalisation::symmetric), directed_graph(), path_graph(1),
        normalise(barabasi_albert(20, 2, 1), Normalisation::random_walk)}) {
    for (const bool own_walks : {false, true}) {
      const at::Tensor f = at::rand({2, 4}, at::kDouble) - 0.3;
      const FeatureOptions options = options_for(GetParam());
      const MaskPtr mask = own_walks ? MaskPtr(GrfMask::per_head(graph, options, f))
                                     : std::make_shared<GrfMask>(graph, options, f);
      const auto& grf = dynamic_cast<const GrfMask&>(*mask);
      const std::int64_t n = graph.num_nodes();
      const at::Tensor expected =
          at::stack({dense_product(grf.features(0), f[0]), dense_product(grf.features(1), f[1])});
      const at::Tensor x = at::rand({2, n, 5}, at::kDouble);
      EXPECT_TRUE(at::allclose(mask->dense(at::kDouble), expected, 1e-10, 1e-12));
      EXPECT_TRUE(at::allclose(mask->multiply(x), at::matmul(expected, x), 1e-10, 1e-12));
      EXPECT_TRUE(
          at::allclose(mask->multiply(x, true), at::matmul(expected.transpose(1, 2), x), 1e-10, 1e-12));
      EXPECT_EQ(mask->entries().size(), own_walks ? 2u : 1u);
    }
  }
}

TEST_P(GrfMasks, PassGradientsToTheModulation) {
  const Graph graph = normalise(grid_graph({3, 3}), Normalisation::symmetric);
  const FeatureOptions options = options_for(GetParam());
  const GrfMask base(graph, options, at::ones({2, 4}, at::kDouble));
  const at::Tensor x = at::rand({2, 9, 3}, at::kDouble), weight = at::rand({2, 9, 3}, at::kDouble);
  const at::Tensor entry_weight = at::rand({base.entries()[0].values.numel()}, at::kDouble);
  const at::Tensor f = at::rand({2, 4}, at::kDouble);
  expect_gradients([&](const auto& in) { return (base.with_f(in[0])->multiply(in[1]) * weight).sum(); },
                   {f, x});
  expect_gradients([&](const auto& in) { return (base.with_f(in[0])->multiply(in[1], true) * weight).sum(); },
                   {f, x});
  expect_gradients(
      [&](const auto& in) {
        return (base.with_f(in[0])->entries()[0].values.flatten() * entry_weight).sum();
      },
      {f});
}

// In single precision, short rows of M go through vector kernels of their own: rows of a few places up to
// more than these hold at once, against double precision.
TEST_P(GrfMasks, AgreeWithDoublePrecision) {
  const Graph graph = normalise(grid_graph({16, 17}), Normalisation::symmetric);
  for (const std::int64_t walks : {1, 3, 8, 16, 40}) {
    for (const double p_halt : {0.6, 0.3}) {
      SCOPED_TRACE(::testing::Message() << walks << " walks, p_halt " << p_halt);
      FeatureOptions options = options_for(GetParam());
      options.walks.num_walks = walks;
      options.walks.max_hops = 9;
      options.walks.p_halt = p_halt;
      const at::Tensor f = (at::rand({2, 10}, at::kDouble) - 0.3).requires_grad_();
      const at::Tensor f_single = f.detach().to(at::kFloat).requires_grad_();
      const SparseEntries expected = GrfMask(graph, options, f).entries().at(0);
      const SparseEntries got = GrfMask(graph, options, f_single).entries().at(0);
      ASSERT_EQ(got.values.scalar_type(), at::kFloat);
      EXPECT_TRUE(at::allclose(got.values.to(at::kDouble), expected.values, 1e-4, 1e-5));
      const at::Tensor grad = at::randn(expected.values.sizes(), at::kDouble);
      expected.values.backward(grad);
      got.values.backward(grad.to(at::kFloat));
      const at::Tensor difference = f_single.grad().to(at::kDouble) - f.grad();
      EXPECT_LE(difference.abs().max().item<double>(), 1e-5 * f.grad().abs().max().item<double>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GrfMasks,
                         ::testing::Values(Ensembles::shared, Ensembles::independent, Ensembles::asymmetric));

TEST(GrfMask, EstimatesItsNumberOfEntries) {
  const Graph graph = normalise(grid_graph({40, 40}), Normalisation::symmetric);
  const GrfMask mask(graph, options_for(Ensembles::shared), at::ones({4}));
  const auto estimate = static_cast<double>(mask.profile().entries);
  const auto exact = static_cast<double>(mask.entries()[0].pattern->nnz());
  EXPECT_NEAR(estimate / exact, 1, 0.1);
  EXPECT_EQ(static_cast<double>(mask.profile().entries), exact);
}

TEST(GrfMask, FollowsAModulationThatChangesInPlace) {
  const Graph graph = normalise(grid_graph({3, 3}), Normalisation::symmetric);
  const at::Tensor f = at::ones({2, 3}, at::kDouble);
  const GrfMask mask(graph, {}, f);
  const at::Tensor before = mask.entries()[0].values;
  EXPECT_TRUE(mask.entries()[0].values.is_same(before));  // nothing changed: not computed again
  f.mul_(2);
  EXPECT_TRUE(at::allclose(mask.entries()[0].values, 4 * before));
}

TEST(GrfMask, RejectsAModulationThatDoesNotFit) {
  const Graph graph = path_graph(4);
  EXPECT_THROW(GrfMask(graph, {}, at::ones({2, 3, 2})), Error);
  EXPECT_THROW(GrfMask(graph, {}, at::ones({2}, at::kInt)), Error);
  const auto mask = GrfMask::per_head(graph, {}, at::ones({2, 3}));
  EXPECT_THROW(mask->with_f(at::ones({3, 3})), Error);
  EXPECT_THROW(mask->multiply(at::ones({2, 5, 1})), Error);
}

TEST(PowerSeriesMask, IsThePolynomialInW) {
  for (const Graph& graph : {normalise(grid_graph({4, 3}), Normalisation::symmetric), directed_graph()}) {
    const at::Tensor w = graph.to_dense();
    const at::Tensor alpha = at::rand({2, 4}, at::kDouble);
    const std::int64_t n = graph.num_nodes();
    std::vector<at::Tensor> heads;
    for (std::int64_t h = 0; h < 2; ++h) {
      heads.push_back(alpha[h][0] * at::eye(n, at::kDouble) + alpha[h][1] * w + alpha[h][2] * w.mm(w) +
                      alpha[h][3] * w.mm(w).mm(w));
    }
    const at::Tensor expected = at::stack(heads);
    const PowerSeriesMask mask(graph, alpha);
    const at::Tensor x = at::rand({2, n, 3}, at::kDouble);
    EXPECT_TRUE(at::allclose(mask.multiply(x), at::matmul(expected, x)));
    EXPECT_TRUE(at::allclose(mask.multiply(x, true), at::matmul(expected.transpose(1, 2), x)));
    EXPECT_TRUE(at::allclose(mask.dense(at::kDouble), expected));
    expect_gradients(
        [&](const auto& in) { return PowerSeriesMask(graph, in[0]).multiply(in[1]).square().sum(); },
        {alpha, x});
  }
}

// What the planner is told: nonzeros of the factors, and the products that new values sum.
TEST_P(GrfMasks, ProfileCountsTheWorkOfNewValues) {
  for (const Graph& graph : {normalise(grid_graph({5, 6}), Normalisation::symmetric), directed_graph()}) {
    const GrfMask mask(graph, options_for(GetParam()), at::ones({4}));
    const GraphFeatures& features = mask.features();
    const bool asymmetric = GetParam() == Ensembles::asymmetric;
    const auto visits = [](const WalkFeatures& own) {
      return own.to_dense(at::ones({4}, at::kDouble)).abs().gt(0).to(at::kDouble).sum(0);
    };
    double expected = static_cast<double>(features.query.num_deposits());
    if (!asymmetric) {
      expected += visits(features.query).dot(visits(features.key)).item<double>();
      if (!features.key.col.is_same(features.query.col))
        expected += static_cast<double>(features.key.num_deposits());
    }
    const MaskProfile profile = mask.profile();
    EXPECT_EQ(profile.value_multiply_adds, expected);
    EXPECT_EQ(profile.left_entries, asymmetric ? 0 : features.query.nnz());
    EXPECT_EQ(profile.right_entries, asymmetric ? 0 : features.key.nnz());
  }
}

}  // namespace
}  // namespace topomask
