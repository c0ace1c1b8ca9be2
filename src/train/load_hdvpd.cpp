#include "topomask/hdvpd.h"
#include "topomask/particle_runs.h"

namespace topomask {

HdVpd load_hdvpd(const std::string& path, c10::Device device) {
  const ParticleCheckpoint checkpoint = read_particle_checkpoint(path);
  const ParticleTaskOptions options = checkpoint.settings.task_options();
  HdVpd model(options.model, options.model_seed);
  std::vector<NamedParameter> parameters;
  for (const auto& item : model->named_parameters()) parameters.push_back({item.key(), item.value()});
  load_parameters(checkpoint.weights, path, "", parameters);
  model->to(device);
  model->eval();
  return model;
}

}  // namespace topomask
