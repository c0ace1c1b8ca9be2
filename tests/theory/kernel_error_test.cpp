#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/parallel.h"
#include "core/random.h"
#include "support/small_graphs.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"
#include "topomask/theory.h"

namespace topomask {
namespace {

const NodeKernel kRegLaplacian = NodeKernel::parse("reg-laplacian:d=2,sigma2=0.25");

Graph karate() {
  return normalise(karate_club(), Normalisation::symmetric);
}

FeatureOptions options_with(std::int64_t walks, Ensembles ensembles) {
  FeatureOptions options;
  options.walks.num_walks = walks;
  options.ensembles = ensembles;
  return options;
}

// M_hat the slow way: dense features and one matrix product.
at::Tensor dense_estimate(const Graph& graph, const NodeKernel& kernel, const FeatureOptions& options) {
  const GraphFeatures features = sample_features(graph, options);
  return features.query.to_dense(at::tensor(feature_modulation(kernel, options), at::kDouble))
      .matmul(features.key.to_dense(at::tensor(key_modulation(kernel, options), at::kDouble)).t());
}

TEST(KernelErrorStudy, AgreesWithDenseProducts) {
  const Graph graphs[] = {karate(), normalise(test::directed_graph(), Normalisation::random_walk)};
  for (const Graph& graph : graphs) {
    for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
      const FeatureOptions options = options_with(8, ensembles);
      const std::int64_t trials = 5;
      const at::Tensor target = estimated_target(graph, kRegLaplacian, options);
      double error = 0, diagonal = 0, total = 0;
      for (std::int64_t trial = 0; trial < trials; ++trial) {
        FeatureOptions seeded = options;
        seeded.walks.seed = derive_seed(options.walks.seed, trial);
        const at::Tensor difference = dense_estimate(graph, kRegLaplacian, seeded) - target;
        error += difference.square().sum().item<double>() / target.square().sum().item<double>() / trials;
        diagonal += difference.diagonal().sum().item<double>() / trials;
        total += difference.sum().item<double>() / trials;
      }
      const auto n = static_cast<double>(graph.num_nodes());
      const KernelError report = measure_kernel_error(graph, kRegLaplacian, options, trials);
      EXPECT_NEAR(report.error, error, 1e-10);
      EXPECT_NEAR(report.bias_diagonal, diagonal / n, 1e-10);
      EXPECT_NEAR(report.bias_off_diagonal, (total - diagonal) / (n * (n - 1)), 1e-10);
    }
  }
}

TEST(KernelErrorStudy, ReproducesTheAuthorsCodeOnTheKarateClub) {
  const Graph graph = karate();
  // The first figure comes from running the authors' code with sigma^2 = 0.25, the others from a simulation
  // of our own. That code sets the series variable to 0.25 W, which is sigma2 = 1/3 here (sigma2 / (1 +
  // sigma2) = 0.25).
  const NodeKernel kernel = NodeKernel::parse("reg-laplacian:d=2,sigma2=0.3333333333333333");
  const struct {
    Ensembles ensembles;
    double expected;  // at 8 walks, known to +-0.0005
  } cases[] = {{Ensembles::shared, 0.034}, {Ensembles::independent, 0.032}, {Ensembles::asymmetric, 0.072}};
  for (const auto& [ensembles, expected] : cases) {
    const KernelError report = measure_kernel_error(graph, kernel, options_with(8, ensembles), 500);
    EXPECT_NEAR(report.error, expected, 4 * report.error_se + 0.0005);
    EXPECT_LE(std::abs(report.bias_off_diagonal), 4 * report.bias_off_diagonal_se);
    EXPECT_LT(report.truncation_error, 1e-10);
    if (ensembles == Ensembles::shared) {
      EXPECT_GT(report.bias_diagonal, 10 * report.bias_diagonal_se);
    } else {
      EXPECT_LE(std::abs(report.bias_diagonal), 4 * report.bias_diagonal_se);
    }
  }
}

TEST(KernelErrorStudy, AdHocFeaturesHaveTheirOwnTarget) {
  for (const Graph& graph : {karate(), test::directed_graph()}) {
    for (const StepLaw step : {StepLaw::uniform, StepLaw::weighted}) {
      FeatureOptions options = options_with(8, Ensembles::independent);
      options.importance_weights = false;
      options.walks.step = step;
      const KernelError report = measure_kernel_error(graph, kRegLaplacian, options, 300);
      EXPECT_LE(std::abs(report.bias_off_diagonal), 4 * report.bias_off_diagonal_se);
      EXPECT_LE(std::abs(report.bias_diagonal), 4 * report.bias_diagonal_se);
      EXPECT_GT(report.truncation_error, 1e-4);  // it is not the kernel that is estimated
    }
  }
}

TEST(KernelErrorStudy, ThreadsDoNotChangeTheResult) {
  const Graph graph = karate();
  const int threads = num_threads();
  set_num_threads(1);
  const KernelError one = measure_kernel_error(graph, kRegLaplacian, options_with(4, Ensembles::shared), 100);
  set_num_threads(3);
  const KernelError three =
      measure_kernel_error(graph, kRegLaplacian, options_with(4, Ensembles::shared), 100);
  set_num_threads(threads);
  EXPECT_EQ(one.error, three.error);
  EXPECT_EQ(one.error_se, three.error_se);
  EXPECT_EQ(one.bias_diagonal, three.bias_diagonal);
  EXPECT_EQ(one.nonzeros_per_row, three.nonzeros_per_row);
}

TEST(KernelErrorStudy, ProgressReachesItsEnd) {
  std::int64_t last = 0, calls = 0;
  measure_kernel_error(karate(), kRegLaplacian, options_with(2, Ensembles::shared), 50,
                       [&](std::int64_t done, std::int64_t total) {
                         EXPECT_GT(done, last);
                         EXPECT_EQ(total, 50);
                         last = done;
                         ++calls;
                       });
  EXPECT_EQ(last, 50);
  EXPECT_GT(calls, 1);
}

TEST(KernelErrorStudy, TruncationAndDivergenceAreReported) {
  FeatureOptions options = options_with(4, Ensembles::shared);
  options.walks.max_hops = 1;
  EXPECT_GT(measure_kernel_error(karate(), kRegLaplacian, options, 2).truncation_error, 1e-6);
  // Unnormalised, the untruncated kernel does not exist while the truncated one does.
  EXPECT_TRUE(std::isnan(measure_kernel_error(karate_club(), kRegLaplacian, options, 2).truncation_error));
  EXPECT_TRUE(std::isnan(measure_kernel_error(karate(), kRegLaplacian, options, 1).error_se));
}

TEST(KernelErrorStudy, DegenerateOptionsAreExact) {
  // p_halt = 1 and max_hops = 0 leave the hop-0 deposit only: M_hat = f_0^2 I = its target.
  for (const bool halt : {true, false}) {
    FeatureOptions options = options_with(4, Ensembles::shared);
    if (halt) options.walks.p_halt = 1;
    if (!halt) options.walks.max_hops = 0;
    const KernelError report = measure_kernel_error(karate(), kRegLaplacian, options, 3);
    EXPECT_NEAR(report.error, 0, 1e-14);
    EXPECT_EQ(report.nonzeros_per_row, 1);
  }
}

TEST(KernelErrorStudy, RefusesWhatItCannotDo) {
  const FeatureOptions options = options_with(4, Ensembles::shared);
  EXPECT_THROW(measure_kernel_error(karate(), kRegLaplacian, options, 0), Error);
  try {
    measure_kernel_error(path_graph(kMaxDenseNodes + 1), kRegLaplacian, options, 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("limited to 4096 nodes, the graph has 4097"));
  }
}

TEST(Theorem, MeasuredTailStaysUnderTheBound) {
  const Graph graph = normalise(test::grid(3, 4), Normalisation::max_degree);
  const NodeKernel kernel = NodeKernel::parse("modulation:1,0.4");
  bool informative = false, deviates = false;
  for (const std::int64_t walks : {4, 64}) {
    FeatureOptions options = options_with(walks, Ensembles::independent);
    options.walks.p_halt = 0.1;
    options.walks.max_hops = 1;
    const double c = concentration_constant(graph, kernel, options.walks.p_halt);
    const at::Tensor target = estimated_target(graph, kernel, options);
    const int trials = 400;
    at::Tensor deviations[4];
    const double levels[4] = {0.05, 0.2, 1.0, 2.0};
    for (int trial = 0; trial < trials; ++trial) {
      options.walks.seed = derive_seed(7, trial);
      const at::Tensor deviation = (dense_estimate(graph, kernel, options) - target).abs();
      for (int level = 0; level < 4; ++level) {
        const at::Tensor beyond = (deviation > levels[level]).to(at::kDouble);
        deviations[level] = trial == 0 ? beyond : deviations[level] + beyond;
      }
    }
    for (int level = 0; level < 4; ++level) {
      const double frequency = deviations[level].max().item<double>() / trials;
      const double bound = tail_bound(levels[level], walks, c);
      EXPECT_LE(frequency, bound) << walks << " walks, t = " << levels[level];
      informative |= bound < 0.5;
      deviates |= frequency > 0.1;
    }
  }
  EXPECT_TRUE(informative);  // else the comparison could not fail
  EXPECT_TRUE(deviates);
}

TEST(Lemma, MeasuredNonzerosStayUnderTheCount) {
  const Graph graphs[] = {grid_graph({40, 40}), complete_tree(9), barabasi_albert(1500, 4)};
  for (const Graph& graph : graphs) {
    for (const double p_halt : {0.2, 0.5, 0.8}) {
      for (const Coupling coupling : {Coupling::independent, Coupling::both}) {
        WalkOptions options;
        options.num_walks = 4;
        options.max_hops = 200;
        options.p_halt = p_halt;
        options.coupling = coupling;
        const WalkFeatures features = sample_walk_features(graph, options);
        const std::int64_t* row_ptr = features.row_ptr.const_data_ptr<std::int64_t>();
        for (const double delta : {0.5, 0.05}) {
          const double bound = sparsity_bound(options.num_walks, p_halt, delta);
          double beyond = 0;
          for (std::int64_t i = 0; i < features.num_nodes(); ++i) {
            beyond += static_cast<double>(row_ptr[i + 1] - row_ptr[i]) > bound ? 1 : 0;
          }
          EXPECT_LE(beyond / static_cast<double>(features.num_nodes()), delta) << p_halt;
        }
      }
    }
  }
}

}  // namespace
}  // namespace topomask
