#include "topomask/hdvpd.h"

#include "core/check.h"
#include "nn/recompute.h"

namespace topomask {

RendererOptions renderer_options(const HdVpdOptions& o) {
  RendererOptions options;
  options.features = o.interlacer.features;
  options.hidden = o.render_hidden;
  options.samples = o.render_samples;
  return options;
}

HdVpdImpl::HdVpdImpl(const HdVpdOptions& options, std::uint64_t seed) : options_(options) {
  check_hdvpd_options(options_);
  options_.interlacer.seed = seed;
  encoder_ = register_module("encoder", UNet(options_.encoder_width, options_.interlacer.features, seed));
  interlacer_ = register_module("interlacer", Interlacer(options_.interlacer));
  renderer_ = register_module("renderer", ParticleRenderer(renderer_options(options_), seed));
}

ParticleState HdVpdImpl::encode(const ParticleBatch& batch) {
  const at::Tensor& images = batch.images;  // [B, 2, C, 3, H, W]
  const std::int64_t clouds = images.size(0), channels = options_.interlacer.features;
  at::Tensor features = encoder_(images.flatten(0, 2));  // [B 2 C, F, H, W]
  features = features.to(at::kFloat)
                 .view({clouds, kObservedFrames, images.size(2), channels, -1})
                 .permute({0, 1, 2, 4, 3})
                 .reshape({clouds, kObservedFrames, -1, channels});  // [B, 2, C H W, F]
  const auto chosen = [&](std::int64_t frame, const at::Tensor& pixels) {
    return features.select(1, frame).gather(1, pixels.unsqueeze(-1).expand({-1, -1, channels}));
  };
  return {batch.positions, chosen(1, batch.pixels), batch.past_positions, chosen(0, batch.past_pixels)};
}

ParticleState HdVpdImpl::step(const ParticleState& state, const at::Tensor& robot, const at::Tensor& grips,
                              Keep keep) {
  const TensorsToTensors updates = [interlacer = interlacer_.ptr(), robot,
                                    of_robot =
                                        robot_features(robot, grips)](const std::vector<at::Tensor>& x) {
    const ParticleUpdate update = interlacer->forward({x[0], x[1], x[2], x[3], robot, of_robot});
    return std::vector<at::Tensor>{update.positions, update.features};
  };
  const std::vector<at::Tensor> inputs = {state.positions, state.features, state.past_positions,
                                          state.past_features};
  const std::vector<at::Tensor> update =
      keep == Keep::all ? updates(inputs) : recomputed(updates, inputs, interlacer_->parameters());
  const std::int64_t past = state.past_positions.size(1);
  return {state.positions + update[0], state.features + update[1], state.positions.narrow(1, 0, past),
          state.features.narrow(1, 0, past)};
}

std::vector<ParticleState> HdVpdImpl::rollout(ParticleState state, const at::Tensor& robot,
                                              const at::Tensor& grips, Keep keep) {
  std::vector<ParticleState> states;
  for (std::int64_t first = 0; first + kRobotMoments <= robot.size(1); ++first) {
    state = step(state, robot.narrow(1, first, kRobotMoments), grips.narrow(1, first, kRobotMoments), keep);
    states.push_back(state);
  }
  return states;
}

Rendered HdVpdImpl::render(const ParticleState& state, const at::Tensor& origins,
                           const at::Tensor& directions) {
  return renderer_->forward(state.positions, state.features, origins, directions);
}

std::int64_t HdVpdImpl::num_parameters() const {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : parameters()) count += tensor.numel();
  return count;
}

}  // namespace topomask
