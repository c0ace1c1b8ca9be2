#include "masks/cpu/pattern.h"

#include <algorithm>
#include <vector>

namespace topomask {

PatternFault find_pattern_fault(std::int64_t num_rows, std::int64_t num_columns, std::int64_t nnz,
                                const std::int64_t* row_ptr, const std::int32_t* col) {
  if (row_ptr[0] != 0) return {0, "row_ptr does not start at 0"};
  for (std::int64_t row = 0; row < num_rows; ++row) {
    if (row_ptr[row + 1] < row_ptr[row]) return {row, "row_ptr decreases"};
    if (row_ptr[row + 1] > nnz) return {row, "row_ptr runs past the columns"};
    for (std::int64_t entry = row_ptr[row]; entry < row_ptr[row + 1]; ++entry) {
      if (col[entry] < 0 || col[entry] >= num_columns) return {row, "a column is out of range"};
      if (entry > row_ptr[row] && col[entry] <= col[entry - 1]) return {row, "columns do not ascend"};
    }
  }
  if (row_ptr[num_rows] != nnz) return {num_rows, "row_ptr ends before the columns do"};
  return {};
}

void transpose_pattern(std::int64_t num_rows, std::int64_t num_columns, const std::int64_t* row_ptr,
                       const std::int32_t* col, std::int64_t* transposed_ptr, std::int32_t* transposed_row,
                       std::int64_t* transposed_entry) {
  std::fill(transposed_ptr, transposed_ptr + num_columns + 1, 0);
  const std::int64_t nnz = row_ptr[num_rows];
  for (std::int64_t entry = 0; entry < nnz; ++entry) ++transposed_ptr[col[entry] + 1];
  for (std::int64_t column = 0; column < num_columns; ++column)
    transposed_ptr[column + 1] += transposed_ptr[column];
  // Rows are visited in ascending order, so that the rows of a column ascend as well.
  std::vector<std::int64_t> next(transposed_ptr, transposed_ptr + num_columns);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t entry = row_ptr[row]; entry < row_ptr[row + 1]; ++entry) {
      const std::int64_t slot = next[col[entry]]++;
      transposed_row[slot] = static_cast<std::int32_t>(row);
      transposed_entry[slot] = entry;
    }
  }
}

}  // namespace topomask
