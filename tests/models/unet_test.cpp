#include "topomask/unet.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "topomask/nn.h"

namespace topomask {
namespace {

TEST(UNet, KeepsTheSizeOfImages) {
  UNet model(16, 5, 0);
  EXPECT_EQ(model->forward(at::rand({2, 3, 16, 24})).sizes(), (std::vector<std::int64_t>{2, 5, 16, 24}));
}

// Few of its many numbers, against central differences of the loss.
TEST(UNet, GradientsAgreeWithFiniteDifferences) {
  UNet model(8, 2, 1);
  model->to(at::kDouble);
  at::Tensor images = at::empty({1, 3, 8, 8}), weights = at::empty({1, 2, 8, 8});
  fill_uniform(images, 1, 2, "images");
  fill_uniform(weights, 1, 3, "weights");
  images = images.to(at::kDouble);
  weights = weights.to(at::kDouble);
  const auto loss = [&] { return (model->forward(images) * weights).sum(); };
  loss().backward();
  const at::NoGradGuard no_grad;
  for (const auto& item : model->named_parameters()) {
    const at::Tensor flat = item.value().detach().view({-1});
    const std::int64_t e = flat.numel() / 2;
    const double value = flat[e].item<double>(), step = 1e-5;
    flat[e] = value + step;
    const double above = loss().item<double>();
    flat[e] = value - step;
    const double expected = (above - loss().item<double>()) / (2 * step);
    flat[e] = value;
    EXPECT_NEAR(item.value().grad().view({-1})[e].item<double>(), expected,
                1e-5 * std::max(1.0, std::abs(expected)))
        << item.key();
  }
}

TEST(UNet, SaysWhatIsWrong) {
  testing::expect_error([] { UNet(12, 5, 0); }, "multiple of 8, got 12");
  UNet model(8, 2, 0);
  testing::expect_error([&] { model->forward(at::rand({1, 3, 20, 24})); }, "[1, 3, 20, 24]");
}

}  // namespace
}  // namespace topomask
