// A pilot sample: how much the entries of M_hat vary at a given number of walks.
#pragma once

#include <cstdint>
#include <vector>

#include "topomask/features.h"

namespace topomask {

struct PilotEntry {
  double deviation = 0;  // standard deviation of M_hat_ij
  double bias = 0;       // |E M_hat_ii - M_ii| of shared ensembles, else 0
};

struct PilotResult {
  std::vector<PilotEntry> entries;  // every entry of the sampled rows and keys that was ever nonzero
  std::int64_t repeats = 0;
  std::int64_t rows = 0;
};

// Walks from these nodes alone, so that the cost does not grow with the graph.
struct PilotNodes {
  std::vector<std::int64_t> rows;  // ascending
  // Columns of the entries that are looked at, ascending; of no meaning for asymmetric ensembles, whose rows
  // are looked at whole.
  std::vector<std::int64_t> keys;
};

// All nodes of a small graph. Else a random sample of rows, with the nodes most likely to be worst (the
// largest degree, and the one whose steps multiply the load most); as keys these again, the nodes that matter
// most to each row in a first sample with options.walks, and some at random.
PilotNodes choose_pilot_nodes(const Graph& graph, const FeatureOptions& options,
                              const std::vector<double>& modulation);

// Samples `repeats` independent masks with options.walks and compares their entries.
// modulation: f or, for asymmetric ensembles, alpha.
PilotResult run_pilot(const Graph& graph, const FeatureOptions& options,
                      const std::vector<double>& modulation, const PilotNodes& nodes, std::int64_t repeats);

}  // namespace topomask
