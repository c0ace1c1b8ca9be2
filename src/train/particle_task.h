// Inside of ParticleDynamics: what training and judging share.
#pragma once

#include <future>

#include "topomask/hdvpd.h"
#include "topomask/particle_training.h"
#include "train/data_clock.h"

namespace topomask {

// The squared difference of the colours of the batch's rays, a differentiable scalar. `states`: one for each
// frame that the batch has rays of.
at::Tensor colour_error(HdVpd& model, const std::vector<ParticleState>& states, const ParticleBatch& batch);

struct ParticleDynamics::Implementation {
  Implementation(const ParticleData& data, const ParticleTaskOptions& options);

  std::int64_t rollout_at(std::int64_t step) const;
  std::vector<ParticleWindow> training_windows(std::int64_t step) const;  // of all ranks
  ParticleBatch training_batch(std::int64_t step) const;                  // of this rank
  // Places in a batch that this rank takes: from .. to - 1.
  std::int64_t own_from() const;
  std::int64_t own_to() const;
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
