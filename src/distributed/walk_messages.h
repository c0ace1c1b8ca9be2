// What ranks send each other for walks, and how many bytes a graph will take: by that the route is chosen,
// and by that a plan predicts it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "topomask/walks.h"

namespace topomask {

// Of a row that was asked for.
struct FetchedEntry {
  std::int32_t place, original;
  float weight;
};

struct Visit {
  std::int32_t start, walk, hop;  // start: row of its owner
  std::int32_t place, original;
  float load;
};

struct SentWalker {
  std::int32_t start_place, start_original, walk, node, length;  // node: place
  float load;
};

// A row of `degree` entries: it is asked for, and comes with its length.
inline double fetched_row_bytes(double degree) {
  return 2 * sizeof(std::int32_t) + degree * sizeof(FetchedEntry);
}

// Walkers from this many nodes, where `cut_share` of all steps cross a border: a hop over it sends the walker
// on. Every visit away from home is sent there, by hop k of at most k * cut_share of the walkers.
inline double walker_bytes(double nodes, double cut_share, const WalkOptions& options) {
  const std::vector<double> survival = survival_function(options);
  double bytes = 0;
  for (int hop = 1; hop <= options.max_hops; ++hop) {
    const double away = std::min(1.0, hop * cut_share);
    bytes += survival[static_cast<std::size_t>(hop)] * (cut_share * static_cast<double>(sizeof(SentWalker)) +
                                                        away * static_cast<double>(sizeof(Visit)));
  }
  return nodes * static_cast<double>(options.num_walks) * bytes;
}

}  // namespace topomask
