// What the checkpoints of a run of particles say of it, and who may go on from them.
#pragma once

#include <map>
#include <string>

#include "topomask/particle_runs.h"

namespace topomask {

using ParticleMetadata = std::map<std::string, std::string>;

std::string hash_of_episodes(const ParticleData& data);
ParticleMetadata describe_particles(const ParticleSettings& settings, const ParticleData& data);
// Throws where the checkpoint at `path` was trained on other episodes than those of `now`.
void check_same_episodes(const ParticleMetadata& saved, const std::string& path, const ParticleMetadata& now);

}  // namespace topomask
