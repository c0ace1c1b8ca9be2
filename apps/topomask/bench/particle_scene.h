// Scenes of particles that need no files: what a benchmark of particle models computes on.
#pragma once

#include "topomask/hdvpd.h"

namespace topomask::cli {

// [count, 3] float32 metres: a table (60 in 100 particles) with two upright arms and a ball on it, about as
// dense as what two cameras see of the simulated robot.
at::Tensor scene_points(std::int64_t count, std::uint64_t seed);

// Clouds of that scene as an Interlacer sees them, with all that `model` asks for: particles, those of the
// moment before, the robot.
ParticleScene made_scene(const HdVpdOptions& model, std::int64_t clouds, std::uint64_t seed,
                         c10::Device device);

// A batch for training: noise for images, of two cameras of `size` pixels; most rays meet particles.
struct MadeBatch {
  std::int64_t windows = 8, rollout = 6, rays = 128, size = 128;
};
ParticleBatch made_batch(const HdVpdOptions& model, const MadeBatch& batch, std::uint64_t seed,
                         c10::Device device);

}  // namespace topomask::cli
