// An order of rows in which neighbours in it read the same columns, for machines that work on many rows at
// once.
#pragma once

#include <cstdint>
#include <vector>

namespace topomask {

// [N] rows, grown as small connected clusters of the pattern; empty where the pattern is small or its rows
// stand well as they are. Takes time linear in the entries.
std::vector<std::int32_t> work_order(std::int64_t num_rows, const std::int64_t* row_ptr,
                                     const std::int32_t* col);

}  // namespace topomask
