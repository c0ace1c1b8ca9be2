// The settings of a run of particles as a list, for the command line and for tables.
#pragma once

#include "topomask/particle_runs.h"
#include "train/settings.h"

namespace topomask {

// It refers to `settings` and must not outlive it.
Settings list_settings(ParticleSettings& settings);

}  // namespace topomask
