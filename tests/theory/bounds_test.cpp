#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/small_graphs.h"
#include "topomask/error.h"
#include "topomask/theory.h"

namespace topomask {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(LoadGrowth, IsTheWorstStep) {
  EXPECT_DOUBLE_EQ(load_growth(test::path(4), 0.5), 4);           // weight 1, degree 2
  EXPECT_DOUBLE_EQ(load_growth(test::grid(3, 3), 0.2), 4 / 0.8);  // the centre has degree 4
  EXPECT_NEAR(load_growth(normalise(test::grid(3, 3), Normalisation::random_walk), 0), 1, 1e-6);
  EXPECT_NEAR(load_growth(normalise(test::grid(3, 3), Normalisation::max_degree), 0), 1, 1e-6);
  EXPECT_EQ(load_growth(test::path(4), 1), kInfinity);
  EXPECT_EQ(load_growth(test::from_pairs(3, {}), 1), 0);
  EXPECT_EQ(load_growth(Graph(), 0.5), 0);
  EXPECT_THROW(load_growth(test::path(4), 1.1), Error);
  EXPECT_THROW(load_growth(test::path(4), std::nan("")), Error);
}

// A single edge of weight w has r = w for p_halt = 0.
Graph edge_of_weight(double weight) {
  at::Tensor adjacency = at::zeros({2, 2}, at::kDouble);
  adjacency.data_ptr<double>()[1] = adjacency.data_ptr<double>()[2] = weight;
  return Graph::from_dense(adjacency);
}

TEST(CoefficientConstant, ClosedFormsAgreeWithTheSeries) {
  for (const char* spec :
       {"reg-laplacian:d=2,sigma2=0.25", "reg-laplacian:d=3.3,sigma2=0.5", "diffusion:sigma2=4",
        "p-step:p=3,a=2", "p-step:p=0.7,a=2.5", "inverse-cosine", "matern:nu=1.5,kappa=1",
        "coefficients:1,0.5,0.25", "coefficients:1,-2,0.5,0", "modulation:1,-0.5,0.25"}) {
    const NodeKernel kernel = NodeKernel::parse(spec);
    for (const double r : {0.0, 0.3, 0.9}) {
      double sum = 0, power = 1;
      for (const double alpha : kernel.coefficients_up_to(2000)) {
        sum += std::abs(alpha) * power;
        power *= r;
      }
      EXPECT_NEAR(coefficient_constant(edge_of_weight(r), kernel, 0), sum, 1e-5 * sum) << spec << " at " << r;
    }
  }
  const auto at_five = [](const char* spec) {
    return coefficient_constant(edge_of_weight(5), NodeKernel::parse(spec), 0);
  };
  EXPECT_DOUBLE_EQ(at_five("coefficients:1,0.5,0.25"), 1 + 2.5 + 6.25) << "a finite series never diverges";
  EXPECT_EQ(at_five("reg-laplacian:d=2,sigma2=0.25"), kInfinity);
  EXPECT_EQ(coefficient_constant(edge_of_weight(1), NodeKernel::parse("diffusion:sigma2=1"), 1), kInfinity);
}

TEST(ConcentrationConstant, ClosedFormsAgreeWithTheSeries) {
  for (const char* spec :
       {"reg-laplacian:d=2,sigma2=0.25", "reg-laplacian:d=3.3,sigma2=0.5", "diffusion:sigma2=4",
        "p-step:p=2,a=2", "p-step:p=3,a=2", "p-step:p=0.7,a=2.5", "p-step:p=7.5,a=2", "inverse-cosine",
        "matern:nu=1.5,kappa=1", "coefficients:1,0.5,0.25", "coefficients:1,1", "coefficients:1,2,1",
        "modulation:1,-2,0.5"}) {
    const NodeKernel kernel = NodeKernel::parse(spec);
    for (const double r : {0.25, 0.5, 0.75}) {
      const Graph graph = edge_of_weight(r);
      const std::vector<double> f = kernel.modulation_up_to(600);
      double sum = 0;
      for (std::size_t k = f.size(); k-- > 0;) sum = sum * r + std::abs(f[k]);
      EXPECT_NEAR(concentration_constant(graph, kernel, 0), sum, 1e-10 * sum) << spec << " at " << r;
      EXPECT_NEAR(concentration_constant(graph, f, 0), sum, 1e-12 * sum) << spec << " at " << r;
    }
  }
}

TEST(ConcentrationConstant, OnTheCircleOfConvergence) {
  const Graph unit = edge_of_weight(1), two = edge_of_weight(2);
  // f_k ~ k^(-3/2): the sum is 2 f_0 and converges slowly from below.
  EXPECT_NEAR(concentration_constant(unit, NodeKernel::parse("inverse-cosine"), 0), 2 * std::pow(2, -0.25),
              1e-12);
  EXPECT_EQ(concentration_constant(edge_of_weight(1.001), NodeKernel::parse("inverse-cosine"), 0), kInfinity);
  // sqrt(1 + z) has sum |C(1/2, k)| = 2.
  EXPECT_NEAR(concentration_constant(unit, NodeKernel::parse("p-step:p=1,a=2"), 0), 2, 1e-12);
  EXPECT_NEAR(concentration_constant(unit, NodeKernel::parse("coefficients:1,1"), 0), 2, 1e-2);
  EXPECT_GE(concentration_constant(unit, NodeKernel::parse("coefficients:1,1"), 0), 2 - 1e-9);
  EXPECT_EQ(concentration_constant(two, NodeKernel::parse("p-step:p=1,a=2"), 0), kInfinity);
  EXPECT_EQ(concentration_constant(two, NodeKernel::parse("reg-laplacian:d=2,sigma2=1"), 0), kInfinity);
  EXPECT_EQ(concentration_constant(edge_of_weight(4), NodeKernel::parse("matern:nu=1.5,kappa=1"), 0),
            kInfinity);
  EXPECT_EQ(concentration_constant(two, NodeKernel::parse("coefficients:1,1"), 0), kInfinity);
}

TEST(ConcentrationConstant, InfiniteAndDegenerateCases) {
  const Graph graph = test::grid(3, 3), isolated = test::from_pairs(3, {});
  const NodeKernel reg = NodeKernel::parse("reg-laplacian"),
                   diffusion = NodeKernel::parse("diffusion:sigma2=1");
  EXPECT_EQ(concentration_constant(graph, reg, 0.5), kInfinity);
  EXPECT_TRUE(std::isfinite(concentration_constant(graph, reg.modulation_up_to(10), 0.5)));
  EXPECT_TRUE(std::isfinite(concentration_constant(graph, diffusion, 0.5)));
  EXPECT_EQ(concentration_constant(graph, diffusion, 1), kInfinity);
  EXPECT_EQ(concentration_constant(graph, NodeKernel::parse("coefficients:1,0,0.5"), 1), kInfinity);
  EXPECT_EQ(concentration_constant(graph, NodeKernel::parse("coefficients:4,0,0"), 1), 2);
  EXPECT_EQ(concentration_constant(graph, std::vector<double>{3, 0, 0}, 1), 3);
  EXPECT_EQ(concentration_constant(graph, std::vector<double>{3, 1}, 1), kInfinity);
  EXPECT_EQ(concentration_constant(graph, std::vector<double>{}, 0.5), 0);
  EXPECT_DOUBLE_EQ(concentration_constant(isolated, diffusion, 1), std::exp(-0.25));
}

TEST(TailBound, IsTheTheoremsFormula) {
  const double t = 0.3, c = 1.7, n = 12;
  EXPECT_DOUBLE_EQ(tail_bound(t, 12, c),
                   2 * std::exp(-t * t * n * n * n / (2 * (2 * n - 1) * (2 * n - 1) * c * c * c * c)));
  EXPECT_EQ(tail_bound(0.1, 10, kInfinity), 2);
  EXPECT_EQ(tail_bound(0.1, 10, 0), 0);
  EXPECT_EQ(tail_bound(0.1, 10, 1e200), 2);
  EXPECT_THROW(tail_bound(0, 10, 1), Error);
  EXPECT_THROW(tail_bound(0.1, 0, 1), Error);
}

TEST(WalksNeeded, IsTheSmallestThatSuffices) {
  for (const double t : {0.05, 0.3, 2.0, 5.0}) {
    for (const double delta : {0.5, 0.05, 1e-6}) {
      for (const double c : {0.5, 1.0, 2.7}) {
        const std::int64_t n = walks_needed(t, delta, c);
        ASSERT_GE(n, 1);
        EXPECT_LE(tail_bound(t, n, c), delta);
        if (n > 1) {
          EXPECT_GT(tail_bound(t, n - 1, c), delta) << t << ' ' << delta << ' ' << c;
          EXPECT_GT(tail_bound(t, 1, c), delta);
        }
      }
    }
  }
  EXPECT_EQ(walks_needed(0.1, 0.05, kInfinity), -1);
  EXPECT_EQ(walks_needed(0.1, 0.05, 1e6), -1);
  EXPECT_EQ(walks_needed(0.1, 0.05, 0), 1);
  EXPECT_THROW(walks_needed(0.1, 0, 1), Error);
  EXPECT_THROW(walks_needed(-1, 0.1, 1), Error);
}

TEST(WalksNeeded, OneWalkCanBeBetterThanTwo) {
  // n^3 / (2n-1)^2 is 1 at n = 1 and 8/9 at n = 2.
  const double delta = tail_bound(3, 1, 1) * 1.0001;
  EXPECT_EQ(walks_needed(3, delta, 1), 1);
  EXPECT_GT(tail_bound(3, 2, 1), delta);
}

TEST(SparsityBound, IsTheLemmasCountPlusTheStart) {
  const double n = 8, p = 0.3, delta = 0.05;
  EXPECT_NEAR(sparsity_bound(8, p, delta), n * std::log(1 - std::pow(1 - delta, 1 / n)) / std::log(1 - p) + 1,
              1e-9);
  EXPECT_EQ(sparsity_bound(8, 0, delta), kInfinity);
  EXPECT_EQ(sparsity_bound(8, 1, delta), 1);
  EXPECT_TRUE(std::isfinite(sparsity_bound(1000000, 0.5, 1e-12)));
  EXPECT_THROW(sparsity_bound(0, 0.5, 0.1), Error);
  EXPECT_THROW(sparsity_bound(8, 0.5, 1), Error);
}

TEST(SparsityBound, HoldsForTheExactLawOfWalkLengths) {
  // On a long directed line all walks overlap; on an infinite tree none does, and the count is 1 + the sum of
  // the lengths, a negative binomial: its exact tail must stay below delta.
  for (const int n : {1, 2, 5}) {
    for (const double p : {0.1, 0.5, 0.9}) {
      for (const double delta : {0.5, 0.1, 0.01}) {
        const double bound = sparsity_bound(n, p, delta);
        double inside = 0, term = std::pow(p, n);  // Pr(sum of n lengths = s), s = 0, 1, ...
        for (int s = 0; s + 1 <= bound; ++s) {
          inside += term;
          term *= (1 - p) * (n + s) / (s + 1);
        }
        EXPECT_GE(inside, 1 - delta - 1e-12) << n << ' ' << p << ' ' << delta;
      }
    }
  }
}

}  // namespace
}  // namespace topomask
