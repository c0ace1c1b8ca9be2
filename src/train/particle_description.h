// What the checkpoints of a particle run say about it, and which runs may resume from them.
#pragma once

#include "topomask/particle_runs.h"
#include "train/shared_run.h"

namespace topomask {

// Pixels of a frame, in the metadata of a checkpoint: `size` may leave them to the data set, which is not a
// part of the episodes' hash.
inline constexpr const char* kFrameSizeKey = "frame_size";

std::string hash_of_episodes(const ParticleData& data);
RunMetadata describe_particles(const ParticleSettings& settings, const ParticleData& data);
// Throws where a checkpoint was trained on other episodes than those of `description`, or on frames of
// another size.
MetadataCheck same_episodes(const RunMetadata& description);

}  // namespace topomask
