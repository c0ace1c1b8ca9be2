// A pilot sample: how much the entries of M_hat vary at a given number of walks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "topomask/features.h"

namespace topomask {

struct PilotEntry {
  double deviation = 0;  // standard deviation of M_hat_ij
  double bias = 0;       // |E M_hat_ii - M_ii| of shared ensembles, else 0
};

struct PilotResult {
  std::vector<PilotEntry> entries;  // every entry of the sampled rows that was ever nonzero
  std::int64_t repeats = 0;
  std::int64_t rows = 0;
};

// Samples `repeats` independent masks with options.walks and compares the given rows between them.
// modulation: [terms] float64, f or, for asymmetric ensembles, alpha. rows: ascending.
PilotResult run_pilot(const Graph& graph, const FeatureOptions& options, const at::Tensor& modulation,
                      const std::vector<std::int64_t>& rows, std::int64_t repeats);

}  // namespace topomask
