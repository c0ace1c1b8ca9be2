// Standard normal numbers from a stream of random words.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/random.h"

namespace topomask {

// Two at a time (Box & Muller). log1p(-u) is finite: u < 1.
inline void fill_standard_normal(RandomStream& random, double* values, std::int64_t count) {
  for (std::int64_t k = 0; k < count; k += 2) {
    const double radius = std::sqrt(-2 * std::log1p(-random.next_double()));
    const double angle = 2 * std::numbers::pi * random.next_double();
    values[k] = radius * std::cos(angle);
    if (k + 1 < count) values[k + 1] = radius * std::sin(angle);
  }
}

}  // namespace topomask
