#include "train/adam.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include "topomask/safetensors.h"

namespace topomask {

namespace {

constexpr const char* kMean = "optimizer.mean.";
constexpr const char* kSquare = "optimizer.square.";

std::vector<NamedParameter> with_tensors(std::vector<NamedParameter> parameters,
                                         const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].tensor = tensors[i];
  return parameters;
}

}  // namespace

Adam::Adam(std::vector<NamedParameter> parameters, const TrainOptions& options) : options_(options) {
  const double mask_rate =
      options.mask_learning_rate > 0 ? options.mask_learning_rate : options.learning_rate;
  std::map<ParameterKind, Group> by_kind;
  by_kind[ParameterKind::weight] = {options.learning_rate, options.weight_decay, {}, {}, {}};
  by_kind[ParameterKind::plain] = {options.learning_rate, 0, {}, {}, {}};
  by_kind[ParameterKind::mask] = {mask_rate, 0, {}, {}, {}};
  for (NamedParameter& parameter : parameters) {
    Group& group = by_kind[parameter.kind];
    group.mean.push_back(at::zeros_like(parameter.tensor));
    group.square.push_back(has_squares() ? at::zeros_like(parameter.tensor) : at::Tensor());
    group.parameters.push_back(std::move(parameter));
  }
  for (auto& [kind, group] : by_kind) {
    if (!group.parameters.empty()) groups_.push_back(std::move(group));
  }
  step_ = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(options.device));
}

void Adam::step(double factor) {
  const at::NoGradGuard no_grad;
  step_.add_(1);
  for (Group& group : groups_) {
    std::vector<at::Tensor> tensors, gradients, mean, square;
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const at::Tensor& tensor = group.parameters[i].tensor;
      if (!tensor.grad().defined()) continue;
      tensors.push_back(tensor);
      gradients.push_back(tensor.grad());
      mean.push_back(group.mean[i]);
      square.push_back(group.square[i]);
    }
    if (tensors.empty()) continue;
    const std::vector<at::Tensor> steps(tensors.size(), step_);
    const auto update = [&](auto&& kernel) {
      kernel(at::TensorList(tensors), at::TensorList(gradients), at::TensorList(mean), at::TensorList(square),
             at::TensorList(), at::TensorList(steps), group.learning_rate * factor);
    };
    if (options_.optimizer == OptimizerKind::sgd) {
      // The momentum starts at 0, so that the first step is one like the others.
      at::_fused_sgd_(tensors, gradients, mean, group.weight_decay, options_.beta1,
                      group.learning_rate * factor,
                      /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false);
    } else if (options_.optimizer == OptimizerKind::adamw) {
      update([&](auto&&... operands) {
        at::_fused_adamw_(operands..., options_.beta1, options_.beta2, group.weight_decay, options_.epsilon,
                          /*amsgrad=*/false, /*maximize=*/false);
      });
    } else {
      update([&](auto&&... operands) {
        at::_fused_adam_(operands..., options_.beta1, options_.beta2, group.weight_decay, options_.epsilon,
                         /*amsgrad=*/false, /*maximize=*/false);
      });
    }
  }
}

void Adam::clear_gradients() {
  for (Group& group : groups_) {
    for (NamedParameter& parameter : group.parameters) parameter.tensor.mutable_grad() = at::Tensor();
  }
}

at::Tensor Adam::clip_gradients() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const Group& group : groups_) {
    for (const NamedParameter& parameter : group.parameters) {
      if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
    }
  }
  const at::Tensor norm = at::stack(at::_foreach_norm(gradients)).norm();
  if (options_.clip_norm > 0) at::_foreach_mul_(gradients, (options_.clip_norm / (norm + 1e-6)).clamp_max(1));
  return norm;
}

void Adam::save(std::map<std::string, at::Tensor>& tensors) const {
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      tensors[kMean + group.parameters[i].name] = group.mean[i];
      if (has_squares()) tensors[kSquare + group.parameters[i].name] = group.square[i];
    }
  }
}

void Adam::load(const SafetensorsFile& file, const std::string& path, std::int64_t steps_done) {
  for (Group& group : groups_) {
    load_parameters(file.tensors, path, kMean, with_tensors(group.parameters, group.mean));
    if (has_squares())
      load_parameters(file.tensors, path, kSquare, with_tensors(group.parameters, group.square));
  }
  set_steps_done(steps_done);
}

void Adam::restart() {
  for (Group& group : groups_) {
    for (at::Tensor& mean : group.mean) mean.zero_();
    for (at::Tensor& square : group.square)
      if (square.defined()) square.zero_();
  }
  set_steps_done(0);
}

void Adam::set_steps_done(std::int64_t steps) {
  step_.fill_(steps);
}

}  // namespace topomask
