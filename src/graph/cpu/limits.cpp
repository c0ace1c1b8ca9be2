#include "graph/cpu/limits.h"

#include "core/units.h"
#include "io/memory.h"

namespace topomask {

void check_memory(const char* where, double bytes) {
  // Asking the system takes longer than a small graph does.
  constexpr double kSmall = double{1 << 28};
  if (bytes <= kSmall) return;
  const auto free = static_cast<double>(available_memory());
  check(bytes <= free, "{}: this takes at least {} of memory, but {} are free", where, format_bytes(bytes),
        format_bytes(free));
}

}  // namespace topomask
