// Trained models for Python: settings as JSON, weights as tensors.
#include <torch/library.h>

#include "topomask/runs.h"

namespace topomask::ops {
namespace {

// The options of a vision transformer, complete with what follows from them (vit_settings_json).
std::string vit_settings(std::string_view options) {
  return vit_settings_json(vit_options_from_json(std::string(options)));
}

std::tuple<std::string, std::vector<std::string>, std::vector<at::Tensor>> load_vit_op(
    std::string_view path) {
  const VitCheckpoint checkpoint = read_vit_checkpoint(std::string(path));
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : checkpoint.weights) {
    names.push_back(name);
    tensors.push_back(tensor);
  }
  return {vit_settings_json(checkpoint.model, checkpoint.images), std::move(names), std::move(tensors)};
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("vit_settings", vit_settings);
  m.impl("load_vit", load_vit_op);
}

}  // namespace topomask::ops
