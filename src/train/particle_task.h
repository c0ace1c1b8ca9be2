// Inside of ParticleDynamics: what training and judging share.
#pragma once

#include <future>

#include "topomask/hdvpd.h"
#include "topomask/particle_training.h"
#include "train/data_clock.h"

namespace topomask {

struct ParticleDynamics::Implementation {
  Implementation(const ParticleData& data, const ParticleTaskOptions& options);

  std::int64_t rollout_at(std::int64_t step) const;
  std::vector<ParticleWindow> training_windows(std::int64_t step) const;
  ParticleBatch training_batch(std::int64_t step) const;
  std::uint64_t evaluation_seed() const;
  std::vector<ParticleWindow> evaluation_windows() const;
  // Of the colours of the batch's rays; a scalar, differentiable.
  at::Tensor mean_square(const ParticleBatch& batch);

  const ParticleData& data;
  ParticleTaskOptions options;
  std::vector<std::int64_t> training, validation;  // episodes
  HdVpd model;
  DataClock data_clock;
  std::int64_t step = 0;  // of the next loss
  std::int64_t ahead_step = -1;
  std::future<ParticleBatch> ahead;  // the batch of ahead_step, while it is prepared
};

}  // namespace topomask
