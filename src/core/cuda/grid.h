// Sizes of a kernel's grid.
#pragma once

#include <cstdint>

namespace topomask {

// Blocks of `block_threads` threads for at least `threads` of them.
constexpr unsigned blocks_for(std::int64_t threads, int block_threads) {
  return static_cast<unsigned>((threads + block_threads - 1) / block_threads);
}

}  // namespace topomask
