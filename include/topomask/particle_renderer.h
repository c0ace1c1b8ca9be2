// The particle renderer as a torch::nn module; particle_rendering.h defines what it computes.
#pragma once

#include <torch/nn.h>

#include <cstdint>

#include "topomask/particle_rendering.h"

namespace topomask {

class ParticleRendererImpl : public torch::nn::Module {
 public:
  // Weights and biases start uniform in +-1/sqrt(inputs), a function of seed and name.
  explicit ParticleRendererImpl(const RendererOptions& options = {}, std::uint64_t seed = 0);

  // As render_particles, with the module's weights.
  Rendered forward(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& origins,
                   const at::Tensor& directions);
  RendererWeights weights() const;
  const RendererOptions& options() const { return options_; }

 private:
  RendererOptions options_;
  torch::nn::Linear trunk1_ = nullptr, trunk2_ = nullptr, density_ = nullptr, colour1_ = nullptr,
                    colour2_ = nullptr;
};
TORCH_MODULE(ParticleRenderer);

}  // namespace topomask
