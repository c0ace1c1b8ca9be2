// What the report of a particle experiment shows: scores against the steps of a rollout, and one rollout of
// each variant with its particles.
//
// It is read from files that 'experiment particle-table' and 'train particles' leave:
//
//   FOLDER/results.json    of 'experiment particle-table'; topomask/particle_table.h has its form
//   FOLDER/config.toml     the recipe, shown as it is; may be missing
//   FOLDER/RUN/rollout.safetensors   the first of each variant is shown, up to 64 steps of it; it and its
//                          tokens may be missing (topomask/particle_runs.h)
//
// Of results.json it needs
//
//   {"experiment": "particle-table", "data", "runs": [{"variant", "seed", "folder"}],
//    "variants": [{"variant", "seeds", "steps": [{"step", "ssim_mean", "ssim_se", ..}]}],
//    "copy": {"steps": [{"step", "ssim", ..}]}, "oracle": {"steps": [..]}}
//
// A FOLDER with the result.json of one run of 'train particles' ({"local", "seed", "rollout": {"model",
// "copy", "oracle": [{"step", "ssim", ..}]}}) is a report of one variant.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "draw/rollout.h"
#include "topomask/particle_options.h"
#include "topomask/particle_runs.h"

namespace topomask::cli {

struct ParticleRollout {
  std::string variant, episode;
  std::uint64_t seed = 0;
  RolloutFrames frames;
  at::Tensor tokens;      // [T, M, 3] float32 on the CPU, or undefined
  at::Tensor colours;     // [N, 3] uint8 of the first N tokens, the particles, where there are tokens
  std::int64_t past = 0;  // of the tokens after them: particles of the moment before; the rest: the robot
  InterlacerOptions interlacer;  // what its graph of tokens depends on
};

struct ParticleReport {
  nlohmann::ordered_json results;  // results.json, or the same of one run
  std::string config;              // TOML
  std::string device;              // may be empty
  std::int64_t particles = 0;      // of a model; 0: not known
  std::vector<ParticleRollout> rollouts;
};

// Whether the files of a particle experiment or run are there.
bool holds_particle_runs(const std::string& folder);
// Throws one sentence where a file cannot be understood.
ParticleReport read_particle_report(const std::string& folder);

// The data of the page: scores as [mean, standard error or null], frames as PNG, and the tokens that steps
// are predicted from with the graph that the local layers have on them.
nlohmann::ordered_json particle_page_data(const ParticleReport& report);

}  // namespace topomask::cli
