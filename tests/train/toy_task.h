// A model of two numbers, so that the loop can be watched: fits y = 3 x - 1 from points that depend on
// (epoch, batch) alone.
#pragma once

#include <ATen/ATen.h>

#include <functional>

#include "topomask/train.h"

namespace topomask::testing {

class ToyTask final : public Task {
 public:
  std::vector<NamedParameter> parameters() override {
    return {{"slope", slope, ParameterKind::weight}, {"offset", offset, ParameterKind::plain}};
  }
  std::int64_t batches_per_epoch() const override { return 10; }
  std::int64_t batch_size() const override { return 8; }
  void start_epoch(std::int64_t new_epoch, std::int64_t new_batch) override {
    epoch = new_epoch;
    batch = new_batch;
  }
  Loss loss() override {
    const at::Tensor x = at::sin(at::arange(8, at::kFloat) + static_cast<double>(100 * epoch + batch));
    // Noise from torch's generator, as dropout would have it.
    const at::Tensor y = 3 * x - 1 + 0.1 * at::randn({8});
    at::Tensor squares = (slope * x + offset - y).square().mean();
    if (spoil && spoil(epoch, batch)) squares = squares * std::numeric_limits<double>::quiet_NaN();
    ++batch;
    ++losses;
    return {squares, at::full({}, 0.5)};
  }
  Evaluation evaluate() override {
    const double error = std::abs(slope.item<double>() - 3) + std::abs(offset.item<double>() + 1);
    evaluated.push_back(slope.item<double>());
    return judged ? judged(evaluated.size()) : Evaluation{error, 1 / (1 + error), 1};
  }
  double merit(const Evaluation& evaluation) const override {
    return lowest_loss_is_best ? -evaluation.loss : Task::merit(evaluation);
  }
  void set_training(bool) override {}
  double take_data_seconds() override { return data_seconds; }

  at::Tensor slope = at::zeros({1, 1}).requires_grad_(), offset = at::zeros({1}).requires_grad_();
  std::int64_t epoch = 0, batch = 0, losses = 0;
  std::function<bool(std::int64_t, std::int64_t)> spoil;
  std::vector<double> evaluated;
  std::function<Evaluation(std::size_t number)> judged;  // in place of the error; numbers from 1
  bool lowest_loss_is_best = false;
  double data_seconds = 0;
};

}  // namespace topomask::testing
