#include "topomask/hdvpd.h"
#include "topomask/models.h"
#include "topomask/particle_runs.h"
#include "train/module_parameters.h"

namespace topomask {
namespace {

template <class Model>
Model with_weights(Model model, const std::map<std::string, at::Tensor>& weights, const std::string& path,
                   c10::Device device) {
  load_parameters(weights, path, "", module_parameters(model));
  model->to(device);
  model->eval();
  return model;
}

}  // namespace

VisionTransformer load_vit(const std::string& path, c10::Device device) {
  VitCheckpoint checkpoint = read_vit_checkpoint(path);
  return with_weights(VisionTransformer(checkpoint.model, std::move(checkpoint.images)), checkpoint.weights,
                      path, device);
}

HdVpd load_hdvpd(const std::string& path, c10::Device device) {
  const ParticleCheckpoint checkpoint = read_particle_checkpoint(path);
  const ParticleTaskOptions options = checkpoint.settings.task_options();
  return with_weights(HdVpd(options.model, options.model_seed), checkpoint.weights, path, device);
}

}  // namespace topomask
