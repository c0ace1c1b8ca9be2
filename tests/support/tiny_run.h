// Settings of runs that take a second.
#pragma once

#include <utility>

#include "topomask/runs.h"

namespace topomask::testing {

inline VitSettings tiny_run(const SettingValues& more = {}, VitSettings defaults = VitSettings()) {
  const std::string pictures = defaults.is_video() ? "motion:12,frames=4" : "strokes:16";
  SettingValues values = {{"data", pictures + ",train=48,val=16"},
                          {"layers", "2"},
                          {"embedding", "8"},
                          {"mlp", "8"},
                          {"batch", "16"},
                          {"walks", "3"},
                          {"max-hops", "3"},
                          {"epochs", "2"},
                          {"learning-rate", "0.02"},
                          {"warmup-epochs", "0"}};
  values.insert(values.end(), more.begin(), more.end());
  return VitSettings::from(values, "", std::move(defaults));
}

}  // namespace topomask::testing
