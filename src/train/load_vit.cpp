#include "topomask/models.h"
#include "topomask/runs.h"

namespace topomask {

VisionTransformer load_vit(const std::string& path, c10::Device device) {
  VitCheckpoint checkpoint = read_vit_checkpoint(path);
  VisionTransformer model(checkpoint.model, std::move(checkpoint.images));
  std::vector<NamedParameter> parameters;
  for (const auto& item : model->named_parameters()) parameters.push_back({item.key(), item.value()});
  load_parameters(checkpoint.weights, path, "", parameters);
  model->to(device);
  model->eval();
  return model;
}

}  // namespace topomask
