#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "support/small_graphs.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"
#include "topomask/plan.h"
#include "topomask/theory.h"

namespace topomask {
namespace {

const NodeKernel kRegLaplacian = NodeKernel::parse("reg-laplacian:d=2,sigma2=0.25");

const EngineCost& engine(const FeaturePlan& plan, const std::string& name) {
  for (const EngineCost& cost : plan.engines) {
    if (cost.engine == name) return cost;
  }
  throw std::out_of_range(name);
}

TEST(GaussianQuantile, KnownValues) {
  EXPECT_NEAR(gaussian_quantile(0.95), 1.959963985, 1e-8);
  EXPECT_NEAR(gaussian_quantile(0.6826894921), 1, 1e-8);
  EXPECT_THROW(gaussian_quantile(1), Error);
}

TEST(Plan, MeasuredWalksReachTheRequestedError) {
  const Graph graph = normalise(karate_club(), Normalisation::symmetric);
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    for (const Coupling coupling : {Coupling::independent, Coupling::both}) {
      FeatureOptions options;
      options.ensembles = ensembles;
      options.walks.coupling = coupling;
      PlanOptions request;
      request.error = 0.05;
      request.confidence = 0.9;
      const FeaturePlan plan = plan_features(graph, kRegLaplacian, options, request);
      ASSERT_GT(plan.walks_measured, 0);
      EXPECT_TRUE(coupling == Coupling::independent || plan.walks_measured % 2 == 0);
      EXPECT_EQ(plan.pilot_rows, 34);

      // Every entry stays within the error in 90% of fresh trials, up to 4 standard errors of that frequency
      // and of the pilot's own deviation estimate.
      options.walks.num_walks = plan.walks_measured;
      const at::Tensor target = estimated_target(graph, kRegLaplacian, options);
      const int trials = 100;
      std::vector<int> beyond(34 * 34, 0);
      const std::vector<double> f = feature_modulation(kRegLaplacian, options);
      const std::vector<double> g = key_modulation(kRegLaplacian, options);
      const auto as_tensor = [](std::vector<double> values) {
        at::Tensor tensor = at::zeros({static_cast<std::int64_t>(values.size())}, at::kDouble);
        std::copy(values.begin(), values.end(), tensor.data_ptr<double>());
        return tensor;
      };
      for (int trial = 0; trial < trials; ++trial) {
        options.walks.seed = 1000 + trial;
        const GraphFeatures sample = sample_features(graph, options);
        const at::Tensor error = sample.query.to_dense(as_tensor(f))
                                     .matmul(sample.key.to_dense(as_tensor(g)).t())
                                     .sub(target)
                                     .abs()
                                     .contiguous();
        for (int e = 0; e < 34 * 34; ++e)
          beyond[e] += error.const_data_ptr<double>()[e] > request.error ? 1 : 0;
      }
      const double worst = *std::max_element(beyond.begin(), beyond.end()) / static_cast<double>(trials);
      EXPECT_LE(worst, 0.1 + 4 * std::sqrt(0.1 * 0.9 / trials));
      EXPECT_TRUE(worst > 0 || coupling == Coupling::both);  // and the number is not wastefully large
    }
  }
}

TEST(Plan, TheoryAsksForMoreThanMeasurement) {
  const Graph graph = normalise(grid_graph({8, 8}), Normalisation::max_degree);
  FeatureOptions options;
  options.walks.p_halt = 0.1;
  PlanOptions request;
  request.error = 0.2;
  const FeaturePlan plan = plan_features(graph, kRegLaplacian, options, request);
  EXPECT_TRUE(std::isfinite(plan.c_untruncated));
  EXPECT_LE(plan.c, plan.c_untruncated);
  EXPECT_EQ(plan.walks_theorem, walks_needed(0.2, 1 - request.confidence, plan.c));
  EXPECT_GT(plan.walks_theorem, plan.walks_measured);
  EXPECT_EQ(plan.note, "");
  EXPECT_LE(plan.nonzeros_mean, static_cast<double>(plan.nonzeros_max));
  EXPECT_LE(plan.nonzeros_mean, plan.sparsity_bound);
}

TEST(Plan, SaysSoWhereTheTheoremPromisesNothing) {
  FeatureOptions options;
  options.walks.p_halt = 1;
  const FeaturePlan plan = plan_features(path_graph(5), kRegLaplacian, options, {});
  EXPECT_EQ(plan.walks_theorem, -1);
  EXPECT_THAT(plan.note, testing::HasSubstr("c is inf"));
  EXPECT_EQ(plan.sparsity_bound, 1);
  EXPECT_EQ(plan.walks_measured, 1);
}

TEST(Plan, CostsFollowTheCounts) {
  const Graph graph = normalise(grid_graph({12, 12}), Normalisation::symmetric);
  FeatureOptions options;
  PlanOptions request;
  request.features = 8;
  request.channels = 16;
  const FeaturePlan plan = plan_features(graph, kRegLaplacian, options, request);
  ASSERT_EQ(plan.engines.size(), 3u);
  EXPECT_DOUBLE_EQ(engine(plan, "dense").multiply_adds, 144.0 * 144 * 25);
  EXPECT_DOUBLE_EQ(engine(plan, "feature").multiply_adds, 2.0 * static_cast<double>(plan.nnz_query) * 8 * 17);
  EXPECT_DOUBLE_EQ(engine(plan, "mask").multiply_adds, plan.nnz_mask * 25);
  for (const EngineCost& cost : plan.engines) {
    EXPECT_GE(cost.multiply_adds, engine(plan, plan.cheapest).multiply_adds);
    EXPECT_GT(cost.bytes, 0);
  }
  // nnz of the mask against a dense product of the patterns, signs left out.
  options.walks.num_walks = plan.walks;
  const GraphFeatures sample = sample_features(graph, options);
  at::Tensor ones = at::zeros({options.walks.max_hops + 1}, at::kDouble);
  ones.fill_(1.0);
  const at::Tensor pattern = sample.query.to_dense(ones).abs();
  EXPECT_TRUE(plan.nnz_mask_counted);
  EXPECT_EQ(plan.nnz_mask, pattern.matmul(pattern.t()).count_nonzero().item<double>());
}

TEST(Plan, EdgeCasesAndErrors) {
  FeatureOptions options;
  PlanOptions request;
  const FeaturePlan empty = plan_features(Graph(), kRegLaplacian, options, request);
  EXPECT_EQ(empty.nnz_mask, 0);
  const FeaturePlan single = plan_features(path_graph(1), kRegLaplacian, options, request);
  EXPECT_EQ(single.nnz_mask, 1);
  request.error = 0;
  EXPECT_THROW(plan_features(path_graph(3), kRegLaplacian, options, request), Error);
  request.error = 0.1;
  request.confidence = 1;
  EXPECT_THROW(plan_features(path_graph(3), kRegLaplacian, options, request), Error);
  request.confidence = 0.9;
  options.walks.p_halt = 1.5;
  EXPECT_THROW(plan_features(path_graph(3), kRegLaplacian, options, request), Error);
}

}  // namespace
}  // namespace topomask
