#include "graph/cpu/limits.h"

#include "io/memory.h"

namespace topomask {

void check_memory(const char* where, double bytes) {
  // Asking the system takes longer than a small graph does.
  constexpr double kSmall = double{1 << 28};
  if (bytes <= kSmall) return;
  const auto free = static_cast<double>(available_memory());
  check(bytes <= free, "{}: this takes at least {:.3g} GB of memory, but {:.3g} GB are free", where,
        bytes / 1e9, free / 1e9);
}

}  // namespace topomask
