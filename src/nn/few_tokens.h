// Where N x N matrices are the fastest way. The dense engine takes time in proportion to N for every token,
// the others do not; limits are from training steps on an H200 (docs/results.md, "Many tokens").
#pragma once

#include <cstdint>

namespace topomask {

constexpr std::int64_t kDenseNodes = 1024;          // never for more
constexpr std::int64_t kDenseUnmaskedNodes = 400;   // without a mask, where the sums of others stay on chip
constexpr std::int64_t kDenseNodesPerNonzero = 15;  // of a row of the mask

}  // namespace topomask
