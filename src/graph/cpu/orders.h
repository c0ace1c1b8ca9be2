// Node orders that put neighbours near each other in memory: position -> old node.
#pragma once

#include <cstdint>
#include <vector>

#include "topomask/csr.h"

namespace topomask {

// Cuthill & McKee 1969, reversed (George 1971). `graph` must have a symmetric pattern. Components come in the
// order of their smallest node, before the reversal.
std::vector<std::int32_t> reverse_cuthill_mckee_order(const CsrView& graph);

// Z-order of points: [count, dimension] row-major, dimension 1 to 3, finite. 21 bits per axis, ties by index.
std::vector<std::int32_t> morton_point_order(const float* points, std::int64_t count, std::int64_t dimension);

}  // namespace topomask
