// Parts of a model that run again in the backward pass.
#include "nn/recompute.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace topomask {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Recomputed : ::testing::Test {
  at::Tensor x = at::arange(6, at::kDouble).view({2, 3}).requires_grad_();
  at::Tensor fixed = at::ones({2, 3}, at::kDouble);
  at::Tensor weight = (at::arange(3, at::kDouble) - .5).requires_grad_();
  at::Tensor idle = at::ones({1}, at::kDouble).requires_grad_();
  int runs = 0;

  TensorsToTensors part = [this](const Tensors& inputs) -> Tensors {
    ++runs;
    const at::Tensor y = (inputs[0] * weight + inputs[1]).tanh();
    return {y * y, y.exp()};
  };
};

TEST_F(Recomputed, HasTheSameResultsAndGradients) {
  const Tensors plain = part({x, fixed}), again = recomputed(part, {x, fixed}, {weight, idle});
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(runs, 2);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(plain[i].equal(again[i]));
  // Both results, or one alone.
  for (const std::vector<double>& share : {std::vector<double>{1, 2}, {0, 3}}) {
    const auto loss = [&](const Tensors& y) {
      return share[0] == 0 ? share[1] * y[1].sum() : share[0] * y[0].sum() + share[1] * y[1].sum();
    };
    const Tensors expected = torch::autograd::grad({loss(part({x, fixed}))}, {x, weight});
    runs = 0;
    const at::Tensor of_again = loss(recomputed(part, {x, fixed}, {weight, idle}));
    EXPECT_EQ(runs, 1);
    const Tensors got = torch::autograd::grad({of_again}, {x, weight, idle}, {}, std::nullopt, false,
                                              /*allow_unused=*/true);
    EXPECT_EQ(runs, 2);
    EXPECT_TRUE(expected[0].equal(got[0]));
    EXPECT_TRUE(expected[1].equal(got[1]));
    EXPECT_FALSE(got[2].defined());
  }
}

TEST_F(Recomputed, GradientsGoThroughSeveral) {
  const auto chain = [&](bool again) {
    at::Tensor y = x;
    for (int step = 0; step < 3; ++step)
      y = again ? recomputed(part, {y, fixed}, {weight})[0] : part({y, fixed})[0];
    return torch::autograd::grad({y.sum()}, {x, weight});
  };
  const Tensors expected = chain(false), got = chain(true);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_LE((expected[i] - got[i]).abs().max().item<double>(), 1e-14);
}

TEST_F(Recomputed, KeepsNothingWhereNobodyLearns) {
  const TensorsToTensors square = [](const Tensors& inputs) -> Tensors { return {inputs[0] * inputs[0]}; };
  EXPECT_FALSE(recomputed(square, {fixed}, {})[0].requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(recomputed(part, {x, fixed}, {weight})[0].requires_grad());
}

}  // namespace
}  // namespace topomask
