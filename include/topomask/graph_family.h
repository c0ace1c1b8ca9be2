// Generated graphs that differ only in size, from one description (graph_spec.h), without building the
// described graph. Measurements on small graphs of a family predict what a large one needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace topomask {

struct GraphFamily {
  std::int64_t nodes = 0;  // of the description
  int dimension = 0;       // in which parts have borders: 2 for grid:HxW; 0: random graphs, all is near all
  // The description with about this many nodes: a grid in the same proportions, er of the same mean degree.
  std::string resized(std::int64_t nodes) const;

  std::string name;
  std::vector<std::int64_t> extent;  // what stands before the first comma
  std::string rest;                  // what stands behind it
};
// Nothing for files, shards and graphs of one or few sizes.
std::optional<GraphFamily> graph_family(const std::string& spec);

}  // namespace topomask
