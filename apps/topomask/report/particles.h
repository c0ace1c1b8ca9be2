// What the report of a particle experiment shows: scores against the steps of a rollout, and one rollout of
// each variant with its particles.
//
// It is read from files that 'experiment particle-table' and 'train particles' leave:
//
//   FOLDER/results.json              scores of all variants (topomask/particle_table.h)
//   FOLDER/config.toml               the recipe, shown as it is; may be missing
//   FOLDER/RUN/rollout.safetensors   the first of each variant is shown (topomask/particle_runs.h); may be
//                                    missing. A page shows up to 16 neighbours and 6 hops of its graph.
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
#include "topomask/particle_runs.h"

namespace topomask::cli {

struct ParticleRollout {
  std::string variant, episode;
  std::uint64_t seed = 0;
  RolloutFrames frames;
  at::Tensor points;   // [T, N, 3] float32 on the CPU, or undefined
  at::Tensor colours;  // [N, 3] uint8, where there are points
  std::int64_t neighbours = 3, hops = 3;
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

// The data of the page: scores as [mean, standard error or null], frames as PNG, and up to 8,192 particles of
// every step with their nearest neighbours among these.
nlohmann::ordered_json particle_page_data(const ParticleReport& report);

}  // namespace topomask::cli
