// How much memory is left.
#pragma once

#include <cstdint>

namespace topomask {

// Bytes that this process may still take without swapping: what the system calls available, or what its
// control group (a container, a batch job) leaves if that is less. The largest number where nothing tells.
std::uint64_t available_memory();

}  // namespace topomask
