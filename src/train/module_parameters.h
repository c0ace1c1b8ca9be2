// The parameters of a model, a holder of a torch::nn module, as the training loop knows them.
#pragma once

#include "topomask/nn.h"

namespace topomask {

template <class Model>
std::vector<NamedParameter> module_parameters(const Model& model) {
  std::vector<NamedParameter> result;
  for (const auto& item : model->named_parameters())
    result.push_back({item.key(), item.value(), parameter_kind(item.key(), item.value())});
  return result;
}

}  // namespace topomask
