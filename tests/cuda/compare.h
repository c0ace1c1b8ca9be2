// A result on the GPU against the float64 result of the same thing on the CPU.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

namespace topomask::testing {

// Norm of the difference, relative to `scale` or to the norm of what is expected, whichever is larger.
inline double relative_error(const at::Tensor& actual, const at::Tensor& expected, double scale = 0) {
  if (expected.numel() == 0) return actual.numel() == 0 ? 0 : 1;
  const at::Tensor there = expected.to(at::kCPU, at::kDouble);
  const double norm = std::max({there.norm().item<double>(), scale, 1e-30});
  return (actual.to(at::kCPU, at::kDouble) - there).norm().item<double>() / norm;
}

inline double tolerance_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-11 : dtype == at::kFloat ? 2e-5 : dtype == at::kHalf ? 4e-3 : 2e-2;
}

// Leaves that start at `values`, in `dtype` on `device`.
inline std::vector<at::Tensor> leaves_on(const std::vector<at::Tensor>& values, c10::Device device,
                                         at::ScalarType dtype) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& value : values)
    leaves.push_back(value.to(device, dtype).detach().clone().requires_grad_());
  return leaves;
}

// The same of q, k and v and, behind them, parameters of a mask, which are no narrower than float32.
inline std::vector<at::Tensor> attention_leaves(const std::vector<at::Tensor>& values, c10::Device device,
                                                at::ScalarType dtype) {
  std::vector<at::Tensor> leaves = leaves_on(values, device, dtype);
  for (std::size_t k = 3; k < values.size(); ++k)
    leaves[k] = leaves_on({values[k]}, device, dtype == at::kDouble ? dtype : at::kFloat).front();
  return leaves;
}

// `run` maps leaves to a result. Returns the result and its gradients for a fixed direction, the same on
// every device.
struct Outcome {
  at::Tensor result;
  std::vector<at::Tensor> gradients;
};
using Run = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

inline Outcome differentiate(const Run& run, const std::vector<at::Tensor>& leaves) {
  Outcome outcome;
  outcome.result = run(leaves);
  const std::int64_t count = outcome.result.numel();
  const at::Tensor direction =
      (at::arange(count, at::kDouble) * 0.7 + 0.2).sin().view(outcome.result.sizes());
  outcome.gradients =
      torch::autograd::grad({outcome.result}, leaves, {direction.to(outcome.result)},
                            /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
  return outcome;
}

inline void expect_close(const Outcome& actual, const Outcome& expected, double tolerance) {
  EXPECT_TRUE(actual.result.is_cuda());
  EXPECT_LE(relative_error(actual.result, expected.result), tolerance);
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  // A gradient may vanish where that of another leaf does not: errors are measured against the largest.
  double scale = 0;
  for (const at::Tensor& gradient : expected.gradients) {
    if (gradient.defined()) scale = std::max(scale, gradient.norm().item<double>());
  }
  for (std::size_t k = 0; k < expected.gradients.size(); ++k) {
    ASSERT_EQ(actual.gradients[k].defined(), expected.gradients[k].defined()) << "leaf " << k;
    if (!expected.gradients[k].defined()) continue;
    EXPECT_TRUE(actual.gradients[k].is_cuda());
    EXPECT_LE(relative_error(actual.gradients[k], expected.gradients[k], scale), tolerance) << "leaf " << k;
  }
}

inline void expect_identical(const Outcome& a, const Outcome& b) {
  EXPECT_TRUE(a.result.equal(b.result));
  for (std::size_t k = 0; k < a.gradients.size(); ++k) {
    if (a.gradients[k].defined()) {
      EXPECT_TRUE(a.gradients[k].equal(b.gradients[k])) << "leaf " << k;
    }
  }
}

}  // namespace topomask::testing
