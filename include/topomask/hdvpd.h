// High-density visual particle dynamics (Whitney et al. 2024; paper, Sec. 4 "point clouds", App. C.3) as a
// torch::nn module: images to particles, the Interlacer as their dynamics, particles to images.
//
//   HdVpd model = load_hdvpd("runs/particles/best.safetensors");
//   ParticleState state = model->encode(batch);                              // topomask/particle_data.h
//   for (const ParticleState& next : model->rollout(state, batch.robot, batch.grips)) ...
//   Rendered seen = model->render(state, origins, directions);
#pragma once

#include <string>
#include <vector>

#include "topomask/interlacer.h"
#include "topomask/particle_data.h"
#include "topomask/particle_renderer.h"
#include "topomask/unet.h"

namespace topomask {

// The particles of a moment, and some of those of the moment before.
struct ParticleState {
  at::Tensor positions, features;            // [B, N, 3], [B, N, F]
  at::Tensor past_positions, past_features;  // [B, P, 3], [B, P, F]
};

// Those of the model's renderer.
RendererOptions renderer_options(const HdVpdOptions& options);

class HdVpdImpl : public torch::nn::Module {
 public:
  HdVpdImpl(const HdVpdOptions& options, std::uint64_t seed);

  // The particles of the two frames that are seen, with features from the U-Net.
  ParticleState encode(const ParticleBatch& batch);
  // What a step keeps for its gradients: all that it computes, or its inputs alone, from which the backward
  // pass computes the rest again.
  enum class Keep { all, inputs };
  // One step: the robot at t-2, t-1 and t, [B, 3, Q, 3] and [B, 3, Q].
  ParticleState step(const ParticleState& state, const at::Tensor& robot, const at::Tensor& grips,
                     Keep keep = Keep::all);
  // All steps that the robot's points [B, 2 + K, Q, 3] tell of: K states.
  std::vector<ParticleState> rollout(ParticleState state, const at::Tensor& robot, const at::Tensor& grips,
                                     Keep keep = Keep::all);
  // [B, R, 3] each
  Rendered render(const ParticleState& state, const at::Tensor& origins, const at::Tensor& directions);

  const HdVpdOptions& options() const { return options_; }
  std::int64_t num_parameters() const;

 private:
  HdVpdOptions options_;
  UNet encoder_ = nullptr;
  Interlacer interlacer_ = nullptr;
  ParticleRenderer renderer_ = nullptr;
};
TORCH_MODULE(HdVpd);

// The model of last.safetensors or best.safetensors of a run (topomask/particle_runs.h), ready to evaluate.
HdVpd load_hdvpd(const std::string& path, c10::Device device = c10::kCPU);

}  // namespace topomask
