#include "masks/cpu/pattern.h"

#include <mutex>

#include "core/parallel.h"
#include "core/transpose.h"

namespace topomask {

namespace {

constexpr std::int64_t kRowsPerCheck = 4096;

PatternFault fault_in_row(std::int64_t row, std::int64_t num_columns, std::int64_t nnz,
                          const std::int64_t* row_ptr, const std::int32_t* col) {
  if (row_ptr[row + 1] < row_ptr[row]) return {row, "row_ptr decreases"};
  if (row_ptr[row] < 0 || row_ptr[row + 1] > nnz) return {row, "row_ptr runs past the columns"};
  for (std::int64_t entry = row_ptr[row]; entry < row_ptr[row + 1]; ++entry) {
    if (col[entry] < 0 || col[entry] >= num_columns) return {row, "a column is out of range"};
    if (entry > row_ptr[row] && col[entry] <= col[entry - 1]) return {row, "columns do not ascend"};
  }
  return {};
}

}  // namespace

PatternFault find_pattern_fault(std::int64_t num_rows, std::int64_t num_columns, std::int64_t nnz,
                                const std::int64_t* row_ptr, const std::int32_t* col) {
  if (row_ptr[0] != 0) return {0, "row_ptr does not start at 0"};
  PatternFault first;
  std::mutex lock;
  parallel_for(num_rows, kRowsPerCheck, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const PatternFault fault = fault_in_row(row, num_columns, nnz, row_ptr, col);
      if (fault.row < 0) continue;
      const std::lock_guard guard(lock);
      if (first.row < 0 || fault.row < first.row) first = fault;
      return;
    }
  });
  if (first.row < 0 && row_ptr[num_rows] != nnz) return {num_rows, "row_ptr ends before the columns do"};
  return first;
}

void transpose_pattern(std::int64_t num_rows, std::int64_t num_columns, const std::int64_t* row_ptr,
                       const std::int32_t* col, std::int64_t* transposed_ptr, std::int32_t* transposed_row,
                       std::int64_t* transposed_entry) {
  transpose_rows(num_rows, num_columns, row_ptr, col, transposed_ptr,
                 [&](std::int64_t slot, std::int64_t row, std::int64_t entry) {
                   transposed_row[slot] = static_cast<std::int32_t>(row);
                   transposed_entry[slot] = entry;
                 });
}

}  // namespace topomask
