#include "topomask/particle_renderer.h"

#include <cmath>

#include "topomask/nn.h"

namespace topomask {

ParticleRendererImpl::ParticleRendererImpl(const RendererOptions& options, std::uint64_t seed)
    : options_(options) {
  check_renderer(options_);
  using torch::nn::Linear;
  const std::int64_t hidden = options_.hidden;
  trunk1_ = register_module("trunk1", Linear(options_.inputs(), hidden));
  trunk2_ = register_module("trunk2", Linear(hidden, hidden));
  density_ = register_module("density", Linear(hidden, 1));
  colour1_ = register_module("colour1", Linear(hidden + 3, hidden));
  colour2_ = register_module("colour2", Linear(hidden, 3));
  for (const auto& layer : named_children()) {
    const auto& linear = *layer.value()->as<Linear>();
    const double bound = 1 / std::sqrt(static_cast<double>(linear.weight.size(1)));
    fill_uniform(linear.weight, bound, seed, layer.key() + ".weight");
    fill_uniform(linear.bias, bound, seed, layer.key() + ".bias");
  }
}

RendererWeights ParticleRendererImpl::weights() const {
  const auto of = [](const torch::nn::Linear& layer) { return LinearWeights{layer->weight, layer->bias}; };
  return {of(trunk1_), of(trunk2_), of(density_), of(colour1_), of(colour2_)};
}

Rendered ParticleRendererImpl::forward(const at::Tensor& positions, const at::Tensor& features,
                                       const at::Tensor& origins, const at::Tensor& directions) {
  return render_particles(positions, features, origins, directions, weights(), options_);
}

}  // namespace topomask
