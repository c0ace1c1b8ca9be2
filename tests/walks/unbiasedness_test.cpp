// Unbiasedness, with standard errors, for every sampler, coupling, kernel, normalisation and kind of
// ensemble; and the published error levels on the karate club.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "topomask/graph_builders.h"
#include "topomask/theory.h"

namespace topomask {
namespace {

constexpr double kStandardErrors = 4;

enum class Sampler { geometric, fixed, survival, weighted };

using Parameters = std::tuple<Sampler, Coupling, std::string, Normalisation>;
class Unbiased : public testing::TestWithParam<Parameters> {};

TEST_P(Unbiased, OffTheDiagonalAlwaysAndOnItWhereNothingIsShared) {
  const auto [sampler, coupling, kernel, normalisation] = GetParam();
  FeatureOptions options;
  options.walks.num_walks = 4;
  options.walks.max_hops = 4;
  options.walks.p_halt = 0.4;
  options.walks.coupling = coupling;
  options.walks.seed = 2024;
  if (sampler == Sampler::fixed) options.walks.length = LengthLaw::fixed;
  if (sampler == Sampler::survival) {
    options.walks.length = LengthLaw::survival;
    options.walks.survival = {1, 0.8, 0.7, 0.3, 0.2};
  }
  if (sampler == Sampler::weighted) options.walks.step = StepLaw::weighted;

  // A lollipop with a chord and uneven, partly negative weights; no two nodes look alike.
  EdgeList edges;
  edges.num_nodes = 7;
  edges.source = {0, 0, 0, 1, 2, 3, 4, 5};
  edges.target = {1, 2, 3, 2, 3, 4, 5, 6};
  edges.weight = {1.0f, 0.5f, 2.0f, -1.0f, 1.5f, 0.7f, 1.2f, 0.4f};
  const Graph graph = normalise(Graph::from_edges(edges), normalisation);

  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    options.ensembles = ensembles;
    const KernelError result = measure_kernel_error(graph, NodeKernel::parse(kernel), options, 600);
    EXPECT_LE(std::abs(result.bias_off_diagonal), kStandardErrors * result.bias_off_diagonal_se + 1e-9);
    if (ensembles != Ensembles::shared) {
      EXPECT_LE(std::abs(result.bias_diagonal), kStandardErrors * result.bias_diagonal_se + 1e-9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Everything, Unbiased,
    testing::Combine(
        testing::Values(Sampler::geometric, Sampler::fixed, Sampler::survival, Sampler::weighted),
        testing::Values(Coupling::independent, Coupling::antithetic, Coupling::repelling, Coupling::both),
        testing::Values("reg-laplacian:d=2,sigma2=0.25", "diffusion:sigma2=1", "p-step:p=3,a=2",
                        "inverse-cosine", "matern:nu=1.5,kappa=1", "coefficients:1,0.5,0.25",
                        "modulation:1,-0.5,0.3"),
        testing::Values(Normalisation::none, Normalisation::symmetric, Normalisation::random_walk,
                        Normalisation::max_degree)));

TEST(Diagonal, OfASharedEnsembleIsBiasedUpwards) {
  FeatureOptions options;
  options.walks.num_walks = 4;
  const Graph graph = normalise(karate_club(), Normalisation::symmetric);
  const KernelError result =
      measure_kernel_error(graph, NodeKernel::parse("reg-laplacian:d=2,sigma2=0.25"), options, 500);
  EXPECT_GT(result.bias_diagonal, kStandardErrors * result.bias_diagonal_se);
}

TEST(Directed, GraphsAreEstimatedWithoutBias) {
  EdgeList edges;
  edges.num_nodes = 5;
  edges.source = {0, 1, 2, 3, 0, 2};
  edges.target = {1, 2, 0, 1, 3, 2};
  edges.weight = {0.5f, -0.7f, 0.4f, 0.9f, 0.3f, 0.2f};
  edges.directed = true;
  const Graph graph = Graph::from_edges(edges);
  FeatureOptions options;
  options.walks.num_walks = 4;
  options.walks.max_hops = 4;
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    options.ensembles = ensembles;
    const KernelError result =
        measure_kernel_error(graph, NodeKernel::parse("diffusion:sigma2=2"), options, 4000);
    EXPECT_LE(std::abs(result.bias_off_diagonal), kStandardErrors * result.bias_off_diagonal_se);
  }
}

// Mean squared relative Frobenius error on the karate club for 2, 4, 8, 16 walkers and the kernel (I -
// W/4)^-2, that is sigma2 = 1/3 (docs/mathematics.md says where the figures come from).
struct Reference {
  Coupling coupling;
  Ensembles ensembles;
  std::vector<double> error;
};

TEST(KarateClub, ErrorsMatchTheReference) {
  const std::vector<Reference> rows = {
      {Coupling::independent, Ensembles::shared, {0.157, 0.071, 0.034, 0.016}},
      {Coupling::antithetic, Ensembles::shared, {0.130, 0.060, 0.029, 0.014}},
      {Coupling::repelling, Ensembles::shared, {0.144, 0.056, 0.0215, 0.0076}},
      {Coupling::both, Ensembles::shared, {0.130, 0.050, 0.018, 0.0058}},
      {Coupling::independent, Ensembles::independent, {0.130, 0.064, 0.032, 0.016}},
      {Coupling::independent, Ensembles::asymmetric, {0.287, 0.145, 0.072, 0.036}},
  };
  const Graph graph = normalise(karate_club(), Normalisation::symmetric);
  NodeKernel kernel;  // 2-regularised Laplacian
  kernel.sigma2 = 1.0 / 3;
  for (const Reference& row : rows) {
    for (std::size_t i = 0; i < row.error.size(); ++i) {
      FeatureOptions options;
      options.walks.num_walks = std::int64_t{2} << i;
      options.walks.max_hops = 20;
      options.walks.coupling = row.coupling;
      options.ensembles = row.ensembles;
      const KernelError result = measure_kernel_error(graph, kernel, options, 1000);
      // The reference is printed with two to three digits: half a unit of its last digit counts too.
      const double rounding = row.error[i] < 0.01 ? 5e-5 : row.error[i] == 0.0215 ? 5e-5 : 5e-4;
      EXPECT_NEAR(result.error, row.error[i], kStandardErrors * result.error_se + rounding)
          << "coupling " << static_cast<int>(row.coupling) << " ensembles " << static_cast<int>(row.ensembles)
          << " walks " << options.walks.num_walks;
    }
  }
}

}  // namespace
}  // namespace topomask
