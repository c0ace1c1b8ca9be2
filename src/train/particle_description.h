// What the checkpoints of a particle run say about it, and which runs may resume from them.
#pragma once

#include "topomask/particle_runs.h"
#include "train/shared_run.h"

namespace topomask {

std::string hash_of_episodes(const ParticleData& data);
RunMetadata describe_particles(const ParticleSettings& settings, const ParticleData& data);
// Throws where a checkpoint was trained on other episodes than those of `description`.
MetadataCheck same_episodes(const RunMetadata& description);

}  // namespace topomask
