#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "core/random.h"
#include "support/small_graphs.h"
#include "theory/pilot.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"
#include "topomask/plan.h"
#include "topomask/theory.h"

namespace topomask {
namespace {

const NodeKernel kPlanned = NodeKernel::parse("reg-laplacian:d=2,sigma2=0.25");

const PlanCandidate& candidate(const FeaturePlan& plan, Engine engine) {
  for (const PlanCandidate& c : plan.attention.candidates) {
    if (c.engine == engine) return c;
  }
  throw std::out_of_range("engine");
}

at::Tensor as_tensor(const std::vector<double>& values) {
  at::Tensor tensor = at::zeros({static_cast<std::int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.data_ptr<double>());
  return tensor;
}

// |M_hat - M|, the slow way.
at::Tensor absolute_error(const Graph& graph, const FeatureOptions& options, const at::Tensor& target) {
  const GraphFeatures sample = sample_features(graph, options);
  return sample.query.to_dense(as_tensor(feature_modulation(kPlanned, options)))
      .matmul(sample.key.to_dense(as_tensor(key_modulation(kPlanned, options))).t())
      .sub(target)
      .abs()
      .contiguous();
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
      const FeaturePlan plan = plan_features(graph, kPlanned, options, request);
      ASSERT_GT(plan.walks_measured, 0);
      EXPECT_TRUE(coupling == Coupling::independent || plan.walks_measured % 2 == 0);
      EXPECT_EQ(plan.pilot_rows, 34);

      // Every entry stays within the error in 90% of fresh trials, up to 4 standard errors of that frequency
      // and of the pilot's own deviation estimate.
      options.walks.num_walks = plan.walks_measured;
      const at::Tensor target = estimated_target(graph, kPlanned, options);
      const int trials = 100;
      std::vector<int> beyond(34 * 34, 0);
      for (int trial = 0; trial < trials; ++trial) {
        options.walks.seed = 1000 + trial;
        const at::Tensor error = absolute_error(graph, options, target);
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
  const FeaturePlan plan = plan_features(graph, kPlanned, options, request);
  EXPECT_TRUE(std::isfinite(plan.c_untruncated));
  EXPECT_LE(plan.c, plan.c_untruncated);
  EXPECT_EQ(plan.walks_theorem, walks_needed(0.2, 1 - request.confidence, plan.c));
  EXPECT_GT(plan.walks_theorem, plan.walks_measured);
  EXPECT_EQ(plan.note, "");
  EXPECT_LE(plan.nonzeros_mean, static_cast<double>(plan.nonzeros_max));
  EXPECT_LE(plan.nonzeros_mean, plan.sparsity_bound);
}

// A bound that holds for each entry leaves some of N^2 entries outside in nearly every sample; the union
// bound is about all of them.
TEST(Plan, AllEntriesAtOnceNeedTheUnionBound) {
  const Graph graph = normalise(karate_club(), Normalisation::symmetric);
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    FeatureOptions options;
    options.ensembles = ensembles;
    PlanOptions request;
    request.error = 0.05;
    const FeaturePlan one = plan_features(graph, kPlanned, options, request);
    request.scope = PlanScope::all_entries;
    const FeaturePlan all = plan_features(graph, kPlanned, options, request);
    EXPECT_EQ(one.entries, 1);
    EXPECT_EQ(all.entries, ensembles == Ensembles::shared ? 34 * 35 / 2 : 34 * 34);
    EXPECT_GT(all.walks_theorem, one.walks_theorem);
    if (ensembles != Ensembles::asymmetric) {
      EXPECT_EQ(all.walks_theorem,
                walks_needed(0.05, (1 - request.confidence) / static_cast<double>(all.entries), all.c));
    }
    const at::Tensor target = estimated_target(graph, kPlanned, options);
    const auto seeds_outside = [&](std::int64_t walks) {
      options.walks.num_walks = walks;
      int outside = 0;
      for (int trial = 0; trial < 200; ++trial) {
        options.walks.seed = 5000 + trial;
        outside += absolute_error(graph, options, target).max().item<double>() > request.error ? 1 : 0;
      }
      return outside / 200.0;
    };
    const double share_one = seeds_outside(one.walks_measured), share_all = seeds_outside(all.walks_measured);
    RecordProperty("ensembles " + std::to_string(static_cast<int>(ensembles)),
                   std::to_string(one.walks_measured) + " walks " + std::to_string(share_one) + ", " +
                       std::to_string(all.walks_measured) + " walks " + std::to_string(share_all));
    EXPECT_GT(share_one, 0.05 + 4 * std::sqrt(0.05 * 0.95 / 200));
    EXPECT_LE(share_all, 0.05 + 4 * std::sqrt(0.05 * 0.95 / 200));
  }
}

TEST(Plan, TheTheoremsNumberIsOnlyForWalksThatItCovers) {
  const Graph graph = normalise(grid_graph({6, 6}), Normalisation::max_degree);
  FeatureOptions covered;
  covered.walks.p_halt = 0.1;
  covered.walks.max_hops = 6;
  const auto note = [&](const FeatureOptions& options) {
    const FeaturePlan plan = plan_features(graph, kPlanned, options, {});
    EXPECT_EQ(plan.theorem_applies, plan.note.empty());
    EXPECT_EQ(plan.walks_theorem < 0, !plan.theorem_applies);
    EXPECT_EQ(std::isnan(plan.c), !plan.theorem_applies);
    EXPECT_GT(plan.walks_measured, 0);
    return plan.note;
  };
  EXPECT_EQ(note(covered), "");
  FeatureOptions options = covered;
  options.walks.length = LengthLaw::fixed;
  EXPECT_THAT(note(options), ::testing::HasSubstr("geometric lengths"));
  options.walks.length = LengthLaw::survival;
  options.walks.survival = {1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4};
  EXPECT_THAT(note(options), ::testing::HasSubstr("geometric lengths"));
  for (const Coupling coupling : {Coupling::antithetic, Coupling::repelling, Coupling::both}) {
    options = covered;
    options.walks.coupling = coupling;
    EXPECT_THAT(note(options), ::testing::HasSubstr("independent walkers"));
  }
  options = covered;
  options.walks.step = StepLaw::weighted;
  options.importance_weights = false;
  EXPECT_EQ(note(options), "the theorem does not apply: it needs uniform steps and importance weights");
}

TEST(Plan, SaysSoWhereTheTheoremPromisesNothing) {
  FeatureOptions options;
  options.walks.p_halt = 1;
  const FeaturePlan plan = plan_features(path_graph(5), kPlanned, options, {});
  EXPECT_EQ(plan.walks_theorem, -1);
  EXPECT_THAT(plan.note, ::testing::HasSubstr("c is inf"));
  EXPECT_EQ(plan.sparsity_bound, 1);
  EXPECT_EQ(plan.walks_measured, 1);
}

TEST(Plan, CostsFollowTheCounts) {
  const Graph graph = normalise(grid_graph({12, 12}), Normalisation::symmetric);
  FeatureOptions options;
  PlanOptions request;
  request.features = 8;
  request.channels = 16;
  const FeaturePlan plan = plan_features(graph, kPlanned, options, request);
  ASSERT_EQ(plan.attention.candidates.size(), 3u);
  EXPECT_DOUBLE_EQ(candidate(plan, Engine::dense).multiply_adds, 144.0 * 144 * 25);
  EXPECT_DOUBLE_EQ(candidate(plan, Engine::mask).multiply_adds, plan.nnz_mask * 25);
  for (const PlanCandidate& c : plan.attention.candidates) {
    EXPECT_GE(c.predicted_cost, candidate(plan, plan.attention.engine).predicted_cost);
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

// The worst entries are found from a few keys, too.
TEST(Pilot, AFewKeysShowTheWorstEntry) {
  const Graph graphs[] = {normalise(barabasi_albert(1500, 3, 1), Normalisation::symmetric),
                          normalise(grid_graph({36, 36}), Normalisation::symmetric)};
  for (const Graph& graph : graphs) {
    for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent}) {
      FeatureOptions options;
      options.walks.num_walks = 16;
      options.walks.p_halt = 0.2;
      options.ensembles = ensembles;
      const std::vector<double> f = feature_modulation(kPlanned, options);
      const PilotNodes few = choose_pilot_nodes(graph, options, f);
      ASSERT_LT(static_cast<std::int64_t>(few.keys.size()), graph.num_nodes());
      EXPECT_TRUE(std::includes(few.keys.begin(), few.keys.end(), few.rows.begin(), few.rows.end()));
      PilotNodes all = few;
      all.keys.resize(static_cast<std::size_t>(graph.num_nodes()));
      std::iota(all.keys.begin(), all.keys.end(), 0);
      const auto worst = [&](const PilotNodes& nodes) {
        PilotEntry found;
        for (const PilotEntry& entry : run_pilot(graph, options, f, nodes, 32).entries) {
          found.deviation = std::max(found.deviation, entry.deviation);
          found.bias = std::max(found.bias, entry.bias);
        }
        return found;
      };
      // The walks of a key are the same in both, so that the few can only miss an entry.
      const PilotEntry by_few = worst(few), by_all = worst(all);
      EXPECT_LE(by_few.deviation, by_all.deviation);
      EXPECT_GE(by_few.deviation, 0.9 * by_all.deviation);
      EXPECT_EQ(by_few.bias, by_all.bias);
      EXPECT_EQ(by_all.bias > 0, ensembles == Ensembles::shared);
    }
  }
}

// What a pilot sees are entries of masks: the same numbers as from the dense features.
TEST(Pilot, MeasuresTheDeviationsOfTheMask) {
  const Graph graph = normalise(karate_club(), Normalisation::random_walk);  // W is not symmetric
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    FeatureOptions options;
    options.ensembles = ensembles;
    const std::vector<double> f = feature_modulation(kPlanned, options);
    constexpr int kRepeats = 5;
    std::vector<at::Tensor> masks;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      FeatureOptions own = options;
      own.walks.seed = derive_seed(options.walks.seed, repeat);
      const GraphFeatures sample = sample_features(graph, own);
      masks.push_back(sample.query.to_dense(as_tensor(f))
                          .matmul(sample.key.to_dense(as_tensor(key_modulation(kPlanned, own))).t()));
    }
    const at::Tensor deviations = std::get<0>(at::stack(masks).std(0).flatten().sort());
    std::vector<double> found;
    for (const PilotEntry& entry :
         run_pilot(graph, options, f, choose_pilot_nodes(graph, options, f), kRepeats).entries)
      found.push_back(entry.deviation);
    std::sort(found.begin(), found.end());
    const std::int64_t zeros = 34 * 34 - static_cast<std::int64_t>(found.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], deviations[zeros + static_cast<std::int64_t>(i)].item<double>(), 1e-6);
  }
}

TEST(CompareEnsembles, IsThePlanOfEachKind) {
  const Graph graph = normalise(karate_club(), Normalisation::symmetric);
  FeatureOptions options;
  PlanOptions request;
  request.error = 0.1;
  std::int64_t last = 0;
  const EnsembleComparison comparison =
      compare_ensembles(graph, kPlanned, options, request, [&](std::int64_t done, std::int64_t total) {
        EXPECT_GE(done, last);
        EXPECT_LE(done, total);
        last = done;
      });
  EXPECT_EQ(last, 12);  // four steps for each
  ASSERT_EQ(comparison.plans.size(), 3u);
  double least = std::numeric_limits<double>::infinity();
  for (const EnsemblePlan& own : comparison.plans) {
    options.ensembles = own.ensembles;
    const FeaturePlan alone = plan_features(graph, kPlanned, options, request);
    EXPECT_EQ(own.plan.walks_measured, alone.walks_measured);
    EXPECT_EQ(own.plan.nnz_mask, alone.nnz_mask);
    EXPECT_GT(own.plan.predicted_seconds, 0);
    least = std::min(least, own.plan.predicted_seconds);
    // One sample's error is one of those that a study averages.
    options.walks.num_walks = own.plan.walks;
    const KernelError study = measure_kernel_error(graph, kPlanned, options, 100);
    const double study_se = study.error_se / (2 * std::sqrt(study.error));
    const double one_trial = 10 * study_se;  // sqrt(100) standard errors of the mean
    EXPECT_EQ(own.plan.relative_error_rows, 34);
    EXPECT_NEAR(own.plan.relative_error, std::sqrt(study.error), 4 * one_trial);
    EXPECT_GT(own.plan.relative_error_se, 0);
  }
  for (const EnsemblePlan& own : comparison.plans) {
    if (own.ensembles == comparison.best) {
      EXPECT_EQ(own.plan.predicted_seconds, least);
    }
  }
  EXPECT_THAT(comparison.advice, ::testing::StartsWith(std::string(word_of(comparison.best))));
  EXPECT_THAT(comparison.to_string(), ::testing::HasSubstr(comparison.advice));
  EXPECT_EQ(compare_ensembles(Graph(), kPlanned, options, request).advice, "");
}

TEST(CompareEnsembles, HubsAskForAsymmetricWalks) {
  const Graph graph = normalise(barabasi_albert(3000, 4, 0), Normalisation::symmetric);
  FeatureOptions options;
  options.walks.p_halt = 0.1;
  const EnsembleComparison comparison =
      compare_ensembles(graph, NodeKernel::parse("diffusion:sigma2=1"), options, {});
  EXPECT_EQ(comparison.best, Ensembles::asymmetric);
  EXPECT_THAT(comparison.advice, ::testing::HasSubstr("it sees 10 hops far, the others 20"));
  const FeaturePlan &shared = comparison.plans[0].plan, &asymmetric = comparison.plans[2].plan;
  EXPECT_LT(10 * asymmetric.nnz_mask, shared.nnz_mask);
  EXPECT_LT(10 * asymmetric.predicted_seconds, shared.predicted_seconds);
}

TEST(Plan, EdgeCasesAndErrors) {
  FeatureOptions options;
  PlanOptions request;
  const FeaturePlan empty = plan_features(Graph(), kPlanned, options, request);
  EXPECT_EQ(empty.nnz_mask, 0);
  const FeaturePlan single = plan_features(path_graph(1), kPlanned, options, request);
  EXPECT_EQ(single.nnz_mask, 1);
  request.error = 0;
  EXPECT_THROW(plan_features(path_graph(3), kPlanned, options, request), Error);
  request.error = 0.1;
  request.confidence = 1;
  EXPECT_THROW(plan_features(path_graph(3), kPlanned, options, request), Error);
  request.confidence = 0.9;
  options.walks.p_halt = 1.5;
  EXPECT_THROW(plan_features(path_graph(3), kPlanned, options, request), Error);
}

}  // namespace
}  // namespace topomask
