// Settings of a particle model that trains within a second, on the four stored episodes.
#pragma once

#include <string>

#include "topomask/particle_runs.h"

namespace topomask::testing {

inline const std::string kEpisodes = TOPOMASK_ROBOT_STATES;

inline ParticleSettings minute(const std::string& local, const SettingValues& more = {}) {
  SettingValues values = {{"data", kEpisodes},
                          {"size", "16"},
                          {"validation-every", "4"},
                          {"batch", "2"},
                          {"local", local},
                          {"particles", "96"},
                          {"robot-points", "4"},
                          {"width", "8"},
                          {"layers", "1"},
                          {"heads", "2"},
                          {"mlp", "8"},
                          {"encoder-width", "8"},
                          {"features", "8"},
                          {"render-hidden", "16"},
                          {"render-samples", "8"},
                          {"steps", "4"},
                          {"epoch-steps", "2"},
                          {"pretrain", "1"},
                          {"double-every", "1"},
                          {"rollout", "2"},
                          {"rays", "32"},
                          {"evaluation-windows", "2"},
                          {"evaluation-rollout", "2"},
                          {"drop-step", "0"}};
  values.insert(values.end(), more.begin(), more.end());
  return ParticleSettings::from(values);
}

}  // namespace topomask::testing
