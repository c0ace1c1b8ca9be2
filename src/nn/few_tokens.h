// Where N x N matrices are small enough to be the fastest way.
#pragma once

#include <cstdint>

namespace topomask {

constexpr std::int64_t kDenseNodes = 1024;  // up to here the dense engine is the fastest

}  // namespace topomask
