// Gradients against central finite differences, in float64.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "core/parallel.h"

namespace topomask::oracle {

// Thousands of tiny products: handing each to several threads would cost more than computing it.
struct OneThread {
  int before = num_threads();
  OneThread() { set_num_threads(1); }
  ~OneThread() { set_num_threads(before); }
};

// `parameters` are leaves of float64 that require gradients; `loss` is a scalar function of them. Every
// element of every one is moved.
inline void expect_gradients(const std::vector<at::Tensor>& parameters,
                             const std::function<at::Tensor()>& loss) {
  const OneThread one_thread;
  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss()}, parameters);
  constexpr double kStep = 1e-4;  // of a central difference of fourth order
  const at::NoGradGuard guard;
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    ASSERT_EQ(gradients[k].sizes(), parameters[k].sizes());
    const at::Tensor flat = parameters[k].detach().view({-1}), gradient = gradients[k].reshape({-1});
    for (std::int64_t e = 0; e < flat.numel(); ++e) {
      const double value = flat[e].item<double>();
      const auto difference = [&](double step) {
        flat[e] = value + step;
        const double above = loss().item<double>();
        flat[e] = value - step;
        return above - loss().item<double>();
      };
      const double expected = (8 * difference(kStep) - difference(2 * kStep)) / (12 * kStep);
      flat[e] = value;
      EXPECT_NEAR(gradient[e].item<double>(), expected, 1e-7 * std::max(1.0, std::abs(expected)))
          << "tensor " << k << ", element " << e;
    }
  }
}

// The same for a loss that takes its leaves as an argument; they start at `values`.
inline void expect_gradients(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss,
                             const std::vector<at::Tensor>& values) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& value : values)
    leaves.push_back(value.detach().clone().contiguous().requires_grad_());
  expect_gradients(leaves, [&] { return loss(leaves); });
}

}  // namespace topomask::oracle
