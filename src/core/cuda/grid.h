// Sizes of a kernel's grid.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask {

// Blocks of `block_threads` threads for at least `threads` of them.
constexpr unsigned blocks_for(std::int64_t threads, int block_threads) {
  return static_cast<unsigned>((threads + block_threads - 1) / block_threads);
}

// Of the current device; 1 if the query fails, which the next launch will report.
inline int num_multiprocessors() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 1;
  if (cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 1;
  return count;
}

}  // namespace topomask
