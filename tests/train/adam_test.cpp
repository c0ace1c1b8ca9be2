// Adam and SGD against their formulas in float64.
#include "train/adam.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace topomask {
namespace {

struct Plain {
  double value, mean = 0, square = 0;

  void step(double gradient, int t, double rate, double decay, OptimizerKind kind) {
    if (kind == OptimizerKind::adamw) {
      value -= rate * decay * value;
    } else {
      gradient += decay * value;
    }
    if (kind == OptimizerKind::sgd) {
      mean = 0.9 * mean + gradient;
      value -= rate * mean;
      return;
    }
    mean = 0.9 * mean + 0.1 * gradient;
    square = 0.95 * square + 0.05 * gradient * gradient;
    value -= rate * (mean / (1 - std::pow(0.9, t))) / (std::sqrt(square / (1 - std::pow(0.95, t))) + 1e-8);
  }
};

class AdamTest : public ::testing::TestWithParam<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, AdamTest,
                         ::testing::Values(OptimizerKind::adamw, OptimizerKind::adam, OptimizerKind::sgd));

TEST_P(AdamTest, FollowsItsFormulas) {
  TrainOptions options;
  options.optimizer = GetParam();
  options.learning_rate = 0.01;
  options.mask_learning_rate = 0.1;
  options.weight_decay = 0.2;
  const at::Tensor weight = at::full({2, 2}, 1.5, at::kDouble).requires_grad_(),
                   bias = at::full({3}, -0.5, at::kDouble).requires_grad_(),
                   mask = at::full({2, 4}, 2.0, at::kDouble).requires_grad_();
  Adam adam({{"weight", weight, ParameterKind::weight},
             {"bias", bias, ParameterKind::plain},
             {"mask", mask, ParameterKind::mask}},
            options);
  Plain plain_weight{1.5}, plain_bias{-0.5}, plain_mask{2.0};
  for (int t = 1; t <= 5; ++t) {
    const double gradient = std::sin(3.0 * t), factor = 1.0 / t;
    for (const at::Tensor& tensor : {weight, bias, mask})
      tensor.mutable_grad() = at::full_like(tensor, gradient);
    adam.step(factor);
    plain_weight.step(gradient, t, 0.01 * factor, 0.2, GetParam());
    plain_bias.step(gradient, t, 0.01 * factor, 0, GetParam());
    plain_mask.step(gradient, t, 0.1 * factor, 0, GetParam());
  }
  EXPECT_NEAR(weight[1][0].item<double>(), plain_weight.value, 1e-12);
  EXPECT_NEAR(bias[2].item<double>(), plain_bias.value, 1e-12);
  EXPECT_NEAR(mask[0][3].item<double>(), plain_mask.value, 1e-12);
}

TEST(Adam, ClipsTheCommonNorm) {
  TrainOptions options;
  options.clip_norm = 1;
  const at::Tensor a = at::zeros({1, 1}).requires_grad_(), b = at::zeros({1}).requires_grad_();
  Adam adam({{"a", a, ParameterKind::weight}, {"b", b, ParameterKind::plain}}, options);
  a.mutable_grad() = at::full_like(a, 3);
  b.mutable_grad() = at::full_like(b, 4);
  EXPECT_FLOAT_EQ(adam.clip_gradients().item<float>(), 5);
  EXPECT_NEAR(a.grad().item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(b.grad().item<double>(), 0.8, 1e-6);
  EXPECT_NEAR(adam.clip_gradients().item<double>(), 1, 1e-6);
  b.mutable_grad() = at::full_like(b, 0.1);
  a.mutable_grad() = at::full_like(a, 0.1);
  adam.clip_gradients();
  EXPECT_FLOAT_EQ(a.grad().item<float>(), 0.1f);  // a small gradient stays
}

}  // namespace
}  // namespace topomask
