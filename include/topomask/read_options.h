// Limits on reading a file: a few kilobytes of gzip, xz or zip can unpack to more than the memory holds.
#pragma once

#include <cstdint>

namespace topomask {

struct ReadOptions {
  // The most bytes that a file, and what it unpacks to, may have. 0: a file may be as large as the memory
  // that is free, and may unpack to 200 times its size (to 256 MiB in any case), but not to more than a
  // quarter of that memory.
  std::uint64_t max_file_size = 0;
};

}  // namespace topomask
