// Stochastic position encoding: the products of its random factors against the template they estimate.
#include <ATen/core/grad_mode.h>
#include <numbers>

#include "core/random.h"
#include "gradcheck.h"
#include "topomask/masks.h"

namespace topomask::oracle {
namespace {

constexpr std::int64_t kNodes = 6;

struct Sine {
  at::Tensor frequencies = test_values({2, 3}, 1).mul(0.2).requires_grad_();
  at::Tensor gains = test_values({2, 3}, 2).requires_grad_();
  at::Tensor phases = test_values({2, 3}, 3).requires_grad_();

  double at(std::int64_t head, std::int64_t t) const {
    double sum = 0;
    for (std::int64_t k = 0; k < 3; ++k) {
      const double gain = gains[head][k].item<double>();
      sum += gain * gain *
             std::cos(2 * std::numbers::pi * frequencies[head][k].item<double>() * static_cast<double>(t) +
                      phases[head][k].item<double>());
    }
    return sum;
  }
  std::shared_ptr<const SpeMask> mask(std::int64_t realisations, std::uint64_t seed) const {
    return SpeMask::sine(kNodes, frequencies, gains, phases, realisations, seed);
  }
};

struct Convolutional {
  at::Tensor query = parameter({2, 3}, 1), key = parameter({2, 3}, 2);

  double at(std::int64_t head, std::int64_t t) const {
    double sum = 0;
    for (std::int64_t p = 0; p < 3; ++p)
      if (p - t >= 0 && p - t < 3) sum += query[head][p].item<double>() * key[head][p - t].item<double>();
    return sum;
  }
  std::shared_ptr<const SpeMask> mask(std::int64_t realisations, std::uint64_t seed) const {
    return SpeMask::convolutional(kNodes, query, key, realisations, seed);
  }
};

// Every entry's mean over independent seeds lies within four standard errors of the template.
template <class Variant>
void expect_unbiased(const Variant& variant) {
  constexpr int kTrials = 2000;
  const at::NoGradGuard guard;
  const OneThread one_thread;
  at::Tensor sum = at::zeros({2, kNodes, kNodes}, at::kDouble), squares = at::zeros_like(sum);
  for (int trial = 0; trial < kTrials; ++trial) {
    const at::Tensor estimate = variant.mask(4, derive_seed(7, trial))->dense(at::kDouble);
    sum += estimate;
    squares += estimate * estimate;
  }
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t i = 0; i < kNodes; ++i) {
      for (std::int64_t j = 0; j < kNodes; ++j) {
        const double mean = sum[h][i][j].item<double>() / kTrials;
        const double variance = squares[h][i][j].item<double>() / kTrials - mean * mean;
        const double standard_error = std::sqrt(variance / kTrials);
        EXPECT_GT(standard_error, 0);
        EXPECT_LE(std::abs(mean - variant.at(h, i - j)), 4 * standard_error) << h << " " << i << " " << j;
      }
    }
  }
}

TEST(SineSpe, IsUnbiased) {
  expect_unbiased(Sine());
}
TEST(ConvolutionalSpe, IsUnbiased) {
  expect_unbiased(Convolutional());
}

template <class Variant>
void expect_operator(const Variant& variant) {
  const auto mask = variant.mask(3, 11);
  const Factors factors = mask->factors();
  EXPECT_EQ(factors.left.sizes(), (std::vector<std::int64_t>{2, kNodes, 3}));
  expect_matches(*mask, at::matmul(factors.left, factors.right.transpose(1, 2)).detach());
  check_gradients(*mask);
  // The same seed gives the same noise, another seed other noise, and heads do not share theirs.
  EXPECT_EQ(max_difference(variant.mask(3, 11)->factors().left, factors.left), 0);
  EXPECT_GT(max_difference(variant.mask(3, 12)->factors().left, factors.left), 0.1);
}

TEST(SineSpe, IsAnOperator) {
  expect_operator(Sine());
}
TEST(ConvolutionalSpe, IsAnOperator) {
  expect_operator(Convolutional());
}

TEST(SineSpe, HeadsDrawTheirOwnNoise) {
  const at::Tensor same = at::ones({2, 3}, at::kDouble);
  const at::Tensor left = SpeMask::sine(kNodes, same * 0.1, same, same, 4, 0)->factors().left;
  EXPECT_GT(max_difference(left[0], left[1]), 0.1);
  const at::Tensor one = same.narrow(0, 0, 1);
  EXPECT_EQ(max_difference(SpeMask::sine(kNodes, one * 0.1, one, one, 4, 0)->factors().left[0], left[0]), 0);
}

TEST(Spe, ChecksItsArguments) {
  const at::Tensor some = test_values({2, 3});
  expect_error([&] { SpeMask::sine(4, some, test_values({2, 4}), some, 2); }, {"gains", "[2, 3]", "[2, 4]"});
  expect_error([&] { SpeMask::sine(4, some, some, some, 0); }, {"realisations", "at least 1", "0"});
  expect_error([&] { SpeMask::sine(-4, some, some, some, 1); }, {"num_nodes", "-4"});
  expect_error(
      [&] {
        SpeMask::convolutional(4, some, test_values({1, 3}), 2);
      },
      {"key_filter", "[2, 3]", "[1, 3]"});
  expect_error(
      [&] {
        SpeMask::convolutional(4, test_values({1, 0}), some, 2);
      },
      {"query_filter", "at least 1"});
  expect_error([&] { SpeMask::convolutional(1 << 30, some, some, 1 << 20); }, {"realisations", "2^33"});
}

}  // namespace
}  // namespace topomask::oracle
