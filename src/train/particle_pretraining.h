// Pretraining is the same for all local layers: it trains encoder and renderer on reconstruction, and leaves
// the Interlacer unused and unchanged. So runs that differ only in their Interlacer can share it, and end
// with the same bits as if each had done it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "topomask/particle_runs.h"

namespace topomask {

// Whether a run begins with the pretraining of `common`: it differs from it in its Interlacer at most.
bool shares_pretraining(const ParticleSettings& common, const ParticleSettings& run);

// Brings the run of a folder that holds no checkpoint to the end of its pretraining, which is done in the
// folder `shared` once, by the process that comes first; others wait for it. Nothing happens where the run
// has begun already, or has no pretraining. Returns a result only where it was asked to stop before.
std::optional<TrainResult> start_from_pretraining(RunFolder& folder, const ParticleSettings& run,
                                                  const std::string& shared, const ParticleSettings& common,
                                                  const ParticleData& data, const TrainCallbacks& callbacks);

}  // namespace topomask
