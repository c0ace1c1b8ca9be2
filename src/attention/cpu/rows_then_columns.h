// The order of work of two passes over a sparse matrix, where a column needs all rows that it meets.
#pragma once

#include <cstdint>
#include <functional>

#include "masks/cpu/spmm.h"

namespace topomask {

// Calls rows(begin, end) for runs of rows and columns(begin, end) for runs of columns, each once, on all
// threads; a run of columns begins when the rows that it meets are finished. On a local graph that is soon
// after them, while what they read and wrote is still in the caches.
// `transposed`: the columns of `matrix`, their entries in ascending order of rows.
void rows_then_columns(const SparseRows& matrix, const SparseRows& transposed,
                       const std::function<void(std::int64_t begin, std::int64_t end)>& rows,
                       const std::function<void(std::int64_t begin, std::int64_t end)>& columns);

}  // namespace topomask
