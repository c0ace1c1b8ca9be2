// Descriptions of the graph that the tokens of an image or a clip form (MaskOptions::patch_graph).
#pragma once

#include <cstdint>
#include <string>

namespace topomask {

struct PatchGraph {
  enum class Kind { grid, diagonals, knn };
  Kind kind = Kind::grid;
  // knn: neighbours, how far tokens move off their cells, and the numbers by which they do.
  std::int64_t k = 0;
  double jitter = 0;
  std::uint64_t seed = 0;
};

// Throws one sentence with the forms where it cannot be understood.
PatchGraph parse_patch_graph(const std::string& description);

}  // namespace topomask
