// How the seed of a run becomes the seeds of its model.
#pragma once

#include "topomask/model_options.h"

namespace topomask {

// The options with the seeds of weights and walks that belong to a run's one seed.
VitOptions with_seeds(VitOptions model, std::uint64_t seed);

}  // namespace topomask
