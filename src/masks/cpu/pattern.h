// The transpose of a sparse pattern, as a permutation of its entries.
#pragma once

#include <cstdint>

namespace topomask {

// Where the first entry that breaks the rules stands: row_ptr must run from 0 to nnz without decreasing,
// columns must lie in [0, num_columns) and ascend strictly within a row. -1: the pattern is sound.
struct PatternFault {
  std::int64_t row = -1;
  const char* what = "";
};
PatternFault find_pattern_fault(std::int64_t num_rows, std::int64_t num_columns, std::int64_t nnz,
                                const std::int64_t* row_ptr, const std::int32_t* col);

// Fills transposed_ptr [columns+1], transposed_row [nnz] and transposed_entry [nnz] from a sound pattern.
void transpose_pattern(std::int64_t num_rows, std::int64_t num_columns, const std::int64_t* row_ptr,
                       const std::int32_t* col, std::int64_t* transposed_ptr, std::int32_t* transposed_row,
                       std::int64_t* transposed_entry);

}  // namespace topomask
