// Settings of a run on one of the ranks that share it.
#pragma once

#include "topomask/distributed.h"

namespace topomask {

// Each rank of a machine has a GPU of its own, unless the settings name one. Collective.
template <class Settings>
Settings on_own_device(Settings settings, const Ranks& ranks) {
  if (ranks.has_group()) settings.device = ranks.compute_on(settings.device).str();
  return settings;
}

}  // namespace topomask
