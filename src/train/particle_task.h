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

// The squared distance of particles to where they truly are (batch.truth), in units of 5 cm, a differentiable
// scalar: the mean over particles and steps of weight * distance^2. Particles that have moved count 4 times
// on arms and 40 times on objects and grains, which are few.
at::Tensor flow_error(const std::vector<ParticleState>& states, const ParticleBatch& batch);

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
  // Differentiable scalars of a batch. `colour` is undefined where there are no rays, `flow` without a truth.
  struct Errors {
    at::Tensor colour, flow;
  };
  Errors errors(const ParticleBatch& batch);
  at::Tensor loss_of(const Errors& errors) const;
  bool learns_flow() const { return options.flow_loss > 0; }
  // Encoder, renderer and features learn from colours alone.
  bool learns_colours() const { return options.render_loss > 0; }

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
