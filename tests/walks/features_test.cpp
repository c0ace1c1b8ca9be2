#include "topomask/features.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/parallel.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"
#include "walks/cpu/walk_plan.h"

namespace topomask {
namespace {

Graph signed_directed() {
  return Graph::from_csr({{0, 2, 3, 5, 5, 6}, {1, 2, 2, 0, 4, 4}, {0.5f, -0.25f, 0.75f, 1.5f, -1.0f, 0.3f}},
                         true);
}

double step_probability(const Graph& graph, std::int64_t from, std::int64_t entry, StepLaw step) {
  const CsrView view = graph.view();
  if (step == StepLaw::uniform) return 1.0 / static_cast<double>(view.degree(from));
  double sum = 0;
  for (std::int64_t e = view.row_ptr[from]; e < view.row_ptr[from + 1]; ++e) sum += std::abs(view.weight[e]);
  return std::abs(view.weight[entry]) / sum;
}

// The oracle: Eq. 10 word for word, in double, from the walks themselves.
at::Tensor features_from_walks(const Graph& graph, const WalkOptions& options, const std::vector<double>& f,
                               bool importance_weights) {
  const CsrView view = graph.view();
  const std::vector<double> survival = survival_function(options);
  const at::Tensor walks = sample_walks(graph, options);
  const auto path = walks.accessor<std::int32_t, 3>();
  at::Tensor phi = at::zeros({graph.num_nodes(), graph.num_nodes()}, at::kDouble);
  auto out = phi.accessor<double, 2>();
  for (std::int64_t i = 0; i < graph.num_nodes(); ++i) {
    for (std::int64_t w = 0; w < options.num_walks; ++w) {
      double product = 1;  // w~(omega) / p(omega)
      out[i][i] += f[0] / static_cast<double>(options.num_walks);
      for (int h = 1; h <= options.max_hops && path[i][w][h] >= 0; ++h) {
        const std::int64_t from = path[i][w][h - 1];
        std::int64_t entry = view.row_ptr[from];
        while (view.col[entry] != path[i][w][h]) ++entry;
        product *= view.weight[entry] / step_probability(graph, from, entry, options.step);
        product *= survival[h - 1] / survival[h];
        if (h < static_cast<int>(f.size())) {
          out[i][path[i][w][h]] +=
              f[h] * (importance_weights ? product : 1) / static_cast<double>(options.num_walks);
        }
      }
    }
  }
  return phi;
}

TEST(Features, BoundTheirRows) {
  const Graph cloud = knn_graph(at::rand({60, 2}), {.k = 3});
  for (const Graph& graph : {cloud, karate_club(), signed_directed()}) {
    for (const std::int64_t num_walks : {1, 4, 27, 200}) {
      WalkOptions options;
      options.num_walks = num_walks;
      options.max_hops = 5;
      options.p_halt = 0.1;
      const WalkFeatures features = sample_walk_features(graph, options);
      EXPECT_FALSE(features.padded);
      EXPECT_LE(features.row_ptr.diff().max().item<std::int64_t>(), features.longest_row);
      EXPECT_LE(features.longest_row, std::min(1 + 5 * num_walks, graph.num_nodes()));
    }
  }
  WalkPlan plan;
  plan.num_walks = 27;
  plan.max_hops = 3;
  EXPECT_EQ(most_deposits(plan, 3, 1000), 1 + 3 + 9 + 27);
  EXPECT_EQ(most_deposits(plan, -1, 1000), 1 + 3 * 27);
  EXPECT_EQ(most_deposits(plan, 4, 1000), 1 + 4 + 16 + 27);
  EXPECT_EQ(most_deposits(plan, 3, 10), 1 + 3 + 9 + 10);
  EXPECT_EQ(most_deposits(plan, 0, 10), 1);
  EXPECT_EQ(one_hot_features(4).longest_row, 1);
}

struct Case {
  LengthLaw length;
  StepLaw step;
  Coupling coupling;
  bool importance_weights;
};

class FeaturesMatchTheWalks : public ::testing::TestWithParam<Case> {};

TEST_P(FeaturesMatchTheWalks, OnEveryGraph) {
  const Case c = GetParam();
  WalkOptions options;
  options.num_walks = 14;
  options.max_hops = 6;
  options.p_halt = 0.25;
  options.length = c.length;
  options.survival = {1, 0.9, 0.8, 0.3, 0.2, 0.1, 0};
  options.step = c.step;
  options.coupling = c.coupling;
  options.seed = 99;
  const std::vector<double> f = {1.0, -0.5, 0.25, 0.7, 0.1, -0.3, 0.2};
  const at::Tensor modulation = at::tensor(f, at::kDouble);
  for (const Graph& graph :
       {grid_graph({6, 5}), normalise(barabasi_albert(40, 2, 1), Normalisation::symmetric), signed_directed(),
        path_graph(1), erdos_renyi(30, 0.05, 2)}) {
    const WalkFeatures features = sample_walk_features(graph, options, c.importance_weights);
    const at::Tensor expected = features_from_walks(graph, options, f, c.importance_weights);
    EXPECT_TRUE(at::allclose(features.to_dense(modulation), expected, 1e-5, 1e-6));
    // Coalesced and ordered.
    const auto col = features.col.accessor<std::int32_t, 1>();
    const auto row_ptr = features.row_ptr.accessor<std::int64_t, 1>();
    const auto hop = features.hop.accessor<std::int16_t, 1>();
    const auto deposit_ptr = features.deposit_ptr.accessor<std::int64_t, 1>();
    for (std::int64_t i = 0; i < graph.num_nodes(); ++i) {
      for (std::int64_t e = row_ptr[i] + 1; e < row_ptr[i + 1]; ++e) ASSERT_LT(col[e - 1], col[e]);
    }
    for (std::int64_t e = 0; e < features.nnz(); ++e) {
      for (std::int64_t d = deposit_ptr[e] + 1; d < deposit_ptr[e + 1]; ++d) ASSERT_LT(hop[d - 1], hop[d]);
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const LengthLaw length : {LengthLaw::geometric, LengthLaw::fixed, LengthLaw::survival}) {
    for (const StepLaw step : {StepLaw::uniform, StepLaw::weighted}) {
      for (const Coupling coupling :
           {Coupling::independent, Coupling::antithetic, Coupling::repelling, Coupling::both}) {
        for (const bool importance : {true, false}) cases.push_back({length, step, coupling, importance});
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, FeaturesMatchTheWalks, ::testing::ValuesIn(all_cases()));

TEST(Features, AreIdenticalForAnyNumberOfThreads) {
  const Graph graph = normalise(grid_graph({150, 80}), Normalisation::symmetric);
  const int threads = num_threads();
  for (const Coupling coupling : {Coupling::independent, Coupling::both}) {
    WalkOptions options;
    options.coupling = coupling;
    set_num_threads(1);
    const WalkFeatures one = sample_walk_features(graph, options);
    set_num_threads(3);
    const WalkFeatures three = sample_walk_features(graph, options);
    EXPECT_TRUE(at::equal(one.row_ptr, three.row_ptr));
    EXPECT_TRUE(at::equal(one.col, three.col));
    EXPECT_TRUE(at::equal(one.deposit_ptr, three.deposit_ptr));
    EXPECT_TRUE(at::equal(one.hop, three.hop));
    EXPECT_TRUE(at::equal(one.load, three.load));
  }
  set_num_threads(threads);
}

TEST(Features, ValuesAreLinearInTheModulationAndDifferentiable) {
  WalkOptions options;
  options.max_hops = 5;
  const WalkFeatures features =
      sample_walk_features(normalise(grid_graph({7, 8}), Normalisation::symmetric), options);
  at::Tensor f = at::rand({3, 6}, at::kDouble).requires_grad_(true);
  const at::Tensor weight = at::rand({3, features.nnz()}, at::kDouble);
  const at::Tensor loss = (features.values(f) * weight).sum();
  loss.backward();
  // The map is linear, so a finite difference is exact up to rounding.
  const at::Tensor grad = f.grad();
  at::Tensor moved = f.detach().clone();
  for (std::int64_t h = 0; h < 3; ++h) {
    for (std::int64_t k = 0; k < 6; ++k) {
      moved[h][k] += 1e-3;
      const double difference =
          ((features.values(moved) * weight).sum() - loss.detach()).item<double>() / 1e-3;
      moved[h][k] -= 1e-3;
      EXPECT_NEAR(grad[h][k].item<double>(), difference, 1e-7 * std::abs(difference) + 1e-9);
    }
  }
  // One head equals the same row of many; missing terms of f are zero; float agrees with double.
  EXPECT_TRUE(at::allclose(features.values(f.detach()[1]), features.values(f.detach())[1]));
  const at::Tensor shorter = f.detach()[0].slice(0, 0, 3);
  at::Tensor padded = at::zeros({6}, at::kDouble);
  padded.slice(0, 0, 3).copy_(shorter);
  EXPECT_TRUE(at::allclose(features.values(shorter), features.values(padded)));
  EXPECT_TRUE(at::allclose(features.values(padded.to(at::kFloat)).to(at::kDouble), features.values(padded),
                           1e-5, 1e-6));
}

// The paper's point clouds: 3 neighbours, 3 hops, 27 repelling walkers. With random-walk weights all loads
// are equal, and then the walkers themselves are exact too; see ExactCase in unbiasedness_test.cpp for
// others.
TEST(Features, TwentySevenRepellingWalkersOnThreeNeighboursAreExact) {
  const Graph graph = normalise(knn_graph(at::rand({60, 3}), {3, false}), Normalisation::random_walk);
  WalkOptions options;
  options.num_walks = 27;
  options.max_hops = 3;
  options.length = LengthLaw::fixed;
  options.coupling = Coupling::repelling;
  const WalkFeatures features = sample_walk_features(graph, options);
  EXPECT_TRUE(features.exact);
  const at::Tensor w = graph.to_dense();
  const at::Tensor f = at::tensor({1.0, 0.5, -0.25, 0.125}, at::kDouble);
  const at::Tensor exact = f[0] * at::eye(60, at::kDouble) + f[1] * w + f[2] * w.mm(w) + f[3] * w.mm(w).mm(w);
  EXPECT_TRUE(at::allclose(features.to_dense(f), exact, 1e-5, 1e-7));
  // The walkers themselves agree, and the seed does not matter.
  EXPECT_TRUE(
      at::allclose(features_from_walks(graph, options, {1.0, 0.5, -0.25, 0.125}, true), exact, 1e-5, 1e-7));
  options.seed = 1;
  EXPECT_TRUE(at::equal(sample_walk_features(graph, options).load, features.load));
  options.num_walks = 26;
  EXPECT_FALSE(sample_walk_features(graph, options).exact);
  options.num_walks = 27;
  options.coupling = Coupling::independent;
  EXPECT_FALSE(sample_walk_features(graph, options).exact);
}

TEST(Features, SharedEnsemblesOfASymmetricGraphShareTheirTensors) {
  const Graph graph = normalise(grid_graph({5, 5}), Normalisation::symmetric);
  FeatureOptions options;
  const GraphFeatures shared = sample_features(graph, options);
  EXPECT_TRUE(shared.key.col.is_same(shared.query.col));
  options.ensembles = Ensembles::independent;
  const GraphFeatures independent = sample_features(graph, options);
  EXPECT_TRUE(at::equal(independent.query.col, shared.query.col));
  EXPECT_FALSE(independent.key.col.numel() == shared.query.col.numel() &&
               at::equal(independent.key.col, shared.query.col));
  options.ensembles = Ensembles::asymmetric;
  const GraphFeatures asymmetric = sample_features(graph, options);
  EXPECT_TRUE(at::equal(asymmetric.key.to_dense(at::tensor({1.0}, at::kDouble)), at::eye(25, at::kDouble)));
}

// With W = D^-1/2 A D^-1/2 and uniform steps, the weights of a walk telescope: a visit of node j at hop k
// weighs sqrt(d_i / d_j) / (1 - p_halt)^k. Where all nodes have the same degree, ad-hoc walks with another f
// are GRFs.
TEST(Features, ImportanceWeightsDependOnHopAndDegreesAlone) {
  const Graph graph = normalise(grid_graph({5, 4}), Normalisation::symmetric);
  FeatureOptions options;
  options.walks.num_walks = 30;
  options.walks.p_halt = 0.2;
  options.walks.max_hops = 4;
  options.walks.seed = 3;
  const WalkFeatures weighted = sample_features(graph, options).query;
  options.importance_weights = false;
  const WalkFeatures counted = sample_features(graph, options).query;
  const at::Tensor root = graph.row_ptr.diff().to(at::kDouble).sqrt();
  for (int hop = 0; hop <= options.walks.max_hops; ++hop) {
    at::Tensor only = at::zeros({options.walks.max_hops + 1}, at::kDouble);
    only[hop] = 1;
    const at::Tensor expected = root.unsqueeze(1) * counted.to_dense(only) / root / std::pow(0.8, hop);
    EXPECT_TRUE(at::allclose(weighted.to_dense(only), expected, 1e-5, 1e-6)) << "hop " << hop;
  }
}

TEST(Features, DegenerateSizesAreDefined) {
  const at::Tensor f = at::tensor({2.0, 1.0}, at::kDouble);
  EXPECT_EQ(sample_walk_features(Graph(), {}).nnz(), 0);
  EXPECT_EQ(sample_walk_features(Graph(), {}).values(f).size(0), 0);
  EXPECT_DOUBLE_EQ(sample_walk_features(path_graph(1), {}).to_dense(f).item<double>(), 2.0);
  WalkOptions options;
  options.max_hops = 0;
  EXPECT_TRUE(
      at::equal(sample_walk_features(path_graph(4), options).to_dense(f), 2 * at::eye(4, at::kDouble)));
  options.max_hops = 3;
  options.p_halt = 1;
  EXPECT_TRUE(
      at::equal(sample_walk_features(path_graph(4), options).to_dense(f), 2 * at::eye(4, at::kDouble)));
}

TEST(Features, RejectAModulationOfTheWrongShape) {
  const WalkFeatures features = sample_walk_features(path_graph(3), {});
  EXPECT_THROW(features.values(at::zeros({1, 2, 3})), Error);
  EXPECT_THROW(features.values(at::zeros({3}, at::kLong)), Error);
}

}  // namespace
}  // namespace topomask
