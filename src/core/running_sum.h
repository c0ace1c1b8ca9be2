#pragma once

#include <cstdint>

namespace topomask {

// values[i] becomes values[0] + ... + values[i], on all threads.
void running_sum(std::int64_t* values, std::int64_t count);

}  // namespace topomask
