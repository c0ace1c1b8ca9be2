// The sizes a graph may have, checked before anything is allocated.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/check.h"

namespace topomask {

constexpr std::int64_t kMaxNodes = std::numeric_limits<std::int32_t>::max();  // columns are int32
constexpr std::int64_t kMaxEntries = std::int64_t{1} << 32;                   // 32 GiB of columns and weights

inline void check_num_nodes(const char* where, std::int64_t num_nodes) {
  check(num_nodes >= 0, "{}: expected a number of nodes of at least 0, got {}", where, num_nodes);
  check(num_nodes <= kMaxNodes, "{}: a graph has at most 2^31 - 1 = {} nodes, got {}", where, kMaxNodes,
        num_nodes);
}

// Throws unless this many bytes are free.
void check_memory(const char* where, double bytes);

// Takes a double because the product that gave `num_entries` may not fit an integer.
inline void check_num_entries(const char* where, double num_entries) {
  check(num_entries <= static_cast<double>(kMaxEntries),
        "{}: a graph has at most 2^32 entries (an undirected edge is two), but this one would have about "
        "{:.3g}",
        where, num_entries);
  constexpr double kBytesPerEntry = 8;  // column and weight
  check_memory(where, kBytesPerEntry * num_entries);
}

}  // namespace topomask
