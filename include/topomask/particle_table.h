// The particle experiment: local layers of the Interlacer over several seeds, by the quality of their
// rollouts (paper, Sec. 4 "point clouds", Fig. 5). Folders, slices and callbacks are those of run_table.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topomask/particle_runs.h"
#include "topomask/run_table.h"

namespace topomask {

// grf, mp, none.
const std::vector<std::string>& particle_table_variants();
// The settings of one run. A variant is a local layer; NAME@key=value@... is the same with other settings:
// grf@neighbours=6, grf@ensembles=shared.
ParticleSettings particle_table_settings(ParticleSettings settings, const std::string& variant,
                                         std::uint64_t seed);

struct ParticleTable {
  ParticleSettings settings;          // of all runs, but for local layer and seed
  std::string folder;                 // all slices of an experiment share settings and data
  std::vector<std::string> variants;  // empty: particle_table_variants()
  std::vector<std::uint64_t> seeds = {0, 1, 2};
};

// Runs what is missing and merges what is finished into FOLDER/results.json:
//
//   {"experiment": "particle-table", "data",
//    "variants": [{"variant", "local", "seeds", "parameters", "train_step_seconds", "step_seconds",
//    "memory_bytes",
//                  "psnr_mean", "psnr_se", "steps": [{"step", "ssim_mean", "ssim_se", "ssim_moving_mean",
//                  ..}]}],
//    "copy": {"steps": [{"step", "ssim", ..}]},     the last frame again, of the first run: the same for all
//                                                   but for its particles, if variants change their number
//    "oracle": {"steps": [{"step", "ssim_mean", "ssim_se", ..}]},   over seeds, each the mean of its runs
//    "spacing", "contact",                          of the windows: ParticleSpacing
//    "runs": [{"variant", "folder", "seed", "psnr", "loss", "seconds", ..}]}
//
// A standard error is null for a single run, and a number is null where it is undefined.
TableResult run_particle_table(const ParticleTable& table, const TableCallbacks& callbacks = {});

}  // namespace topomask
