// Central finite differences in float64 against autograd.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace topomask {

// `loss(inputs)` must be a scalar; every element of every input is moved by +-step.
inline void expect_gradients(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss,
                             const std::vector<at::Tensor>& values, double tolerance = 1e-6) {
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& value : values) inputs.push_back(value.detach().clone().requires_grad_(true));
  loss(inputs).backward();
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(inputs[i].grad().defined()) << "input " << i << " got no gradient";
    const at::Tensor grad = inputs[i].grad().contiguous();
    std::vector<at::Tensor> moved;
    for (const at::Tensor& value : values) moved.push_back(value.detach().clone().contiguous());
    double* element = moved[i].data_ptr<double>();
    for (std::int64_t e = 0; e < moved[i].numel(); ++e) {
      const double original = element[e];
      element[e] = original + kStep;
      const double above = loss(moved).item<double>();
      element[e] = original - kStep;
      const double below = loss(moved).item<double>();
      element[e] = original;
      const double expected = (above - below) / (2 * kStep);
      EXPECT_NEAR(grad.data_ptr<double>()[e], expected, tolerance * (1 + std::abs(expected)))
          << "input " << i << " element " << e;
    }
  }
}

}  // namespace topomask
