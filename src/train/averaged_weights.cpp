#include "train/averaged_weights.h"

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <algorithm>

#include "train/checkpoint_file.h"

namespace topomask {

AveragedWeights::AveragedWeights(std::vector<NamedParameter> parameters, double decay)
    : parameters_(std::move(parameters)), decay_(decay) {
  if (!enabled()) return;
  for (const NamedParameter& parameter : parameters_) average_.push_back(parameter.tensor.detach().clone());
}

void AveragedWeights::update(std::int64_t step) {
  if (!enabled()) return;
  const at::NoGradGuard no_grad;
  const auto done = static_cast<double>(step);
  const double decay = std::min(decay_, (1 + done) / (10 + done));
  std::vector<at::Tensor> current;
  for (const NamedParameter& parameter : parameters_) current.push_back(parameter.tensor.detach());
  at::_foreach_lerp_(average_, current, 1 - decay);
}

void AveragedWeights::save(std::map<std::string, at::Tensor>& tensors) const {
  for (std::size_t i = 0; i < average_.size(); ++i)
    tensors[kAveragePrefix + parameters_[i].name] = average_[i];
}

void AveragedWeights::load(const SafetensorsFile& file, const std::string& path) {
  if (!enabled()) return;
  std::vector<NamedParameter> averages = parameters_;
  for (std::size_t i = 0; i < averages.size(); ++i) averages[i].tensor = average_[i];
  load_parameters(file.tensors, path, kAveragePrefix, averages);
}

void AveragedWeights::hand_over() const {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < average_.size(); ++i) parameters_[i].tensor.detach().copy_(average_[i]);
}

void AveragedWeights::swap() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < average_.size(); ++i) {
    at::Tensor weights = parameters_[i].tensor.detach();
    const at::Tensor kept = weights.clone();
    weights.copy_(average_[i]);
    average_[i].copy_(kept);
  }
}

}  // namespace topomask
