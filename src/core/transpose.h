// The transpose of sparse rows, on all threads: a counting sort of the entries by column.
//
// The entries of a column come in the order of their rows, on any number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace topomask {

// A run of rows, and for each column from `low` how many of its entries stand in earlier runs.
struct TransposedRun {
  std::int64_t first_row = 0, last_row = 0;
  std::int32_t low = 0;
  std::vector<std::int32_t> before;
};

// Fills transposed_ptr [num_columns+1]. There are more runs than one only where threads and entries are many.
std::vector<TransposedRun> count_columns(std::int64_t num_rows, std::int64_t num_columns,
                                         const std::int64_t* row_ptr, const std::int32_t* col,
                                         std::int64_t* transposed_ptr);

// Calls place(slot, row, entry) once for each entry, on several threads: it is number `slot` of the
// transpose.
template <class Place>
void transpose_rows(std::int64_t num_rows, std::int64_t num_columns, const std::int64_t* row_ptr,
                    const std::int32_t* col, std::int64_t* transposed_ptr, const Place& place) {
  std::vector<TransposedRun> runs = count_columns(num_rows, num_columns, row_ptr, col, transposed_ptr);
  parallel_for(static_cast<std::int64_t>(runs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      TransposedRun& run = runs[r];
      for (std::int64_t row = run.first_row; row < run.last_row; ++row) {
        for (std::int64_t entry = row_ptr[row]; entry < row_ptr[row + 1]; ++entry) {
          place(transposed_ptr[col[entry]] + run.before[col[entry] - run.low]++, row, entry);
        }
      }
    }
  });
}

}  // namespace topomask
