#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/parallel.h"
#include "support/small_graphs.h"
#include "topomask/error.h"
#include "topomask/kernels.h"

namespace topomask {
namespace {

using test::directed_graph;
using test::grid;
using test::path;
using ::testing::HasSubstr;

// Relative to the largest entry of the expected matrix.
double distance(const at::Tensor& actual, const at::Tensor& expected) {
  return (actual - expected).abs().max().item<double>() / expected.abs().max().item<double>();
}

std::vector<Graph> symmetric_graphs() {
  return {normalise(path(9), Normalisation::symmetric), normalise(grid(4, 5), Normalisation::symmetric)};
}

const char* const kTable[] = {"reg-laplacian:d=2,sigma2=0.25",
                              "reg-laplacian:d=1.3,sigma2=2",
                              "diffusion:sigma2=3",
                              "p-step:p=2,a=2",
                              "p-step:p=2.5,a=2.2",
                              "inverse-cosine",
                              "matern:nu=1.5,kappa=1",
                              "matern:nu=2,kappa=1",
                              "coefficients:1,-0.5,0.25",
                              "modulation:1,0.5,0.1"};

// The kernels straight from their definitions through L = I - W, with matrix functions by
// eigen-decomposition.
at::Tensor by_definition(const Graph& graph, const std::string& spec) {
  const at::Tensor weight = graph.to_dense();
  const auto [lambda, vectors] = at::linalg_eigh(at::eye(weight.size(0), at::kDouble) - weight);
  at::Tensor value;
  if (spec == kTable[0]) value = (1 + 0.25 * lambda).pow(-2);
  if (spec == kTable[1]) value = (1 + 2 * lambda).pow(-1.3);
  if (spec == kTable[2]) value = (-1.5 * lambda).exp();
  if (spec == kTable[3]) value = (2 - lambda).pow(2);
  if (spec == kTable[4]) value = (2.2 - lambda).pow(2.5);
  if (spec == kTable[5]) value = (std::numbers::pi / 4 * lambda).cos();
  if (spec == kTable[6]) value = (3 + lambda).pow(-1.5);
  if (spec == kTable[7]) value = (4 + lambda).pow(-2);
  if (spec == kTable[8]) value = 1 - 0.5 * (1 - lambda) + 0.25 * (1 - lambda).pow(2);
  if (spec == kTable[9]) value = (1 + 0.5 * (1 - lambda) + 0.1 * (1 - lambda).pow(2)).pow(2);
  return (vectors * value).matmul(vectors.t());
}

class ExactKernel : public ::testing::TestWithParam<const char*> {};

TEST_P(ExactKernel, MatchesItsDefinitionOnSymmetricGraphs) {
  for (const Graph& graph : symmetric_graphs()) {
    EXPECT_LE(distance(exact_kernel(graph, NodeKernel::parse(GetParam())), by_definition(graph, GetParam())),
              1e-12);
  }
}

TEST_P(ExactKernel, MatchesItsSeries) {
  const NodeKernel kernel = NodeKernel::parse(GetParam());
  for (const Graph& graph : symmetric_graphs()) {
    EXPECT_LE(
        distance(dense_power_series(graph, kernel.coefficients_up_to(2000)), exact_kernel(graph, kernel)),
        1e-10);
  }
}

TEST_P(ExactKernel, MatchesItsSeriesWithoutSymmetry) {
  const NodeKernel kernel = NodeKernel::parse(GetParam());
  for (const Graph& graph : {normalise(directed_graph(), Normalisation::random_walk),
                             normalise(grid(3, 4), Normalisation::random_walk)}) {
    ASSERT_FALSE(graph.is_symmetric());
    EXPECT_LE(
        distance(exact_kernel(graph, kernel), dense_power_series(graph, kernel.coefficients_up_to(2000))),
        1e-9);
  }
}

TEST_P(ExactKernel, DefectiveMatrixFallsBackToTheSeries) {
  // A directed path is nilpotent: it has no eigenbasis, and its series ends by itself.
  const Graph graph = test::from_pairs(4, {{0, 1}, {1, 2}, {2, 3}}, true);
  const NodeKernel kernel = NodeKernel::parse(GetParam());
  EXPECT_LE(distance(exact_kernel(graph, kernel), dense_power_series(graph, kernel.coefficients_up_to(4))),
            1e-12);
}

INSTANTIATE_TEST_SUITE_P(Table, ExactKernel, ::testing::ValuesIn(kTable), [](const auto& test) {
  std::string name = test.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

TEST(ExactKernelErrors, DivergenceIsAnError) {
  const Graph wild = grid(4, 4);  // unnormalised: spectral radius 3.2
  try {
    exact_kernel(wild, NodeKernel::parse("reg-laplacian:d=2,sigma2=1"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("spectral radius below 2"));
  }
  EXPECT_THROW(exact_kernel(wild, NodeKernel::parse("p-step:p=2.5,a=2")), Error);
  EXPECT_NO_THROW(exact_kernel(wild, NodeKernel::parse("p-step:p=3,a=2")));
  EXPECT_NO_THROW(exact_kernel(wild, NodeKernel::parse("diffusion:sigma2=1")));
}

TEST(ExactKernelErrors, BrokenPowerOnItsBoundaryIsFine) {
  // A bipartite graph has the eigenvalue -1, where (1 + lambda)^p is zero and its series just converges.
  const Graph graph = normalise(path(6), Normalisation::symmetric);
  const at::Tensor kernel = exact_kernel(graph, NodeKernel::parse("p-step:p=1.5,a=2"));
  const at::Tensor square = kernel.matmul(kernel),
                   cube = exact_kernel(graph, NodeKernel::parse("p-step:p=3,a=2"));
  EXPECT_LE(distance(square, cube), 1e-9);
}

TEST(ExactKernelErrors, EmptyAndSingle) {
  EXPECT_EQ(exact_kernel(Graph(), NodeKernel()).numel(), 0);
  const Graph single = test::from_pairs(1, {});
  EXPECT_NEAR(exact_kernel(single, NodeKernel::parse("diffusion:sigma2=1")).item<double>(), std::exp(-0.5),
              1e-15);
}

TEST(Horner, MatchesTheDenseSeries) {
  const std::vector<double> alpha = NodeKernel::parse("diffusion:sigma2=3").coefficients_up_to(25);
  for (const Graph& graph : {normalise(grid(6, 7), Normalisation::symmetric), directed_graph()}) {
    const at::Tensor dense = dense_power_series(graph, alpha);
    for (const std::int64_t columns : {1, 3, 16, 37}) {
      const at::Tensor x = at::randn({graph.num_nodes(), columns}, at::kDouble);
      EXPECT_LE(distance(apply_power_series(graph, alpha, x), dense.matmul(x)), 1e-12) << columns;
      const at::Tensor single = apply_power_series(graph, alpha, x.to(at::kFloat));
      EXPECT_EQ(single.scalar_type(), at::kFloat);
      EXPECT_LE(distance(single.to(at::kDouble), dense.matmul(x)), 1e-5);
    }
    const at::Tensor vector = at::randn({graph.num_nodes()}, at::kDouble);
    const at::Tensor product = apply_power_series(graph, alpha, vector);
    EXPECT_EQ(product.dim(), 1);
    EXPECT_LE(distance(product, dense.matmul(vector)), 1e-12);
  }
}

TEST(Horner, StridedInputAndThreadsDoNotMatter) {
  const Graph graph = normalise(grid(40, 40), Normalisation::symmetric);
  const std::vector<double> alpha = NodeKernel::parse("inverse-cosine").coefficients_up_to(12);
  const at::Tensor x = at::randn({20, graph.num_nodes()}, at::kFloat).t();
  const int threads = num_threads();
  set_num_threads(1);
  const at::Tensor one = apply_power_series(graph, alpha, x.contiguous());
  set_num_threads(4);
  const at::Tensor four = apply_power_series(graph, alpha, x);
  set_num_threads(threads);
  EXPECT_TRUE(one.equal(four));
}

TEST(Horner, EdgeCases) {
  const Graph graph = path(3);
  const at::Tensor x = at::randn({3, 2}, at::kDouble);
  EXPECT_EQ(apply_power_series(graph, {}, x).abs().sum().item<double>(), 0);
  EXPECT_TRUE(apply_power_series(graph, {2.0, 0.0, 0.0}, x).equal(2 * x));
  EXPECT_EQ(apply_power_series(Graph(), {1.0, 1.0}, at::zeros({0, 4})).sizes(),
            (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(apply_power_series(graph, {1.0, 1.0}, at::zeros({3, 0})).numel(), 0);
  EXPECT_THROW(apply_power_series(graph, {1.0}, at::zeros({4, 2})), Error);
  EXPECT_THROW(apply_power_series(graph, {1.0}, at::zeros({3, 2, 1})), Error);
  EXPECT_THROW(apply_power_series(graph, {1.0}, at::zeros({3}, at::kLong)), Error);
  EXPECT_THROW(apply_power_series(graph, {1.0}, at::Tensor()), Error);
}

TEST(Definiteness, FollowsTheSpectrum) {
  const Graph graph = normalise(path(8), Normalisation::symmetric);  // bipartite: eigenvalues +-1
  EXPECT_TRUE(check_positive_definite(graph, NodeKernel::parse("diffusion:sigma2=2")).positive_definite);
  EXPECT_TRUE(check_positive_definite(graph, NodeKernel::parse("reg-laplacian")).positive_definite);
  const DefinitenessReport indefinite =
      check_positive_definite(graph, NodeKernel::parse("coefficients:0.5,1"));
  EXPECT_FALSE(indefinite.positive_definite);
  EXPECT_NEAR(indefinite.smallest, -0.5, 1e-6);
  // (1 + lambda)^2 vanishes at lambda = -1: semi-definite only, whatever the rounding.
  EXPECT_FALSE(check_positive_definite(graph, NodeKernel::parse("p-step:p=2,a=2")).positive_definite);
  EXPECT_TRUE(check_positive_definite(graph, NodeKernel::parse("p-step:p=2,a=2.1")).positive_definite);
  EXPECT_THROW(check_positive_definite(directed_graph(), NodeKernel()), Error);
}

}  // namespace
}  // namespace topomask
