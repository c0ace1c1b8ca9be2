// The union of sparse patterns that are placed along the diagonal of a larger one.
#pragma once

#include <cstdint>
#include <vector>

namespace topomask {

struct PlacedRows {
  std::int64_t num_rows = 0;
  std::int64_t offset = 0;                // of its first row and column
  const std::int64_t* row_ptr = nullptr;  // [num_rows+1]
  const std::int32_t* col = nullptr;      // [nnz], ascending within a row
};

// Fills row_ptr [num_nodes+1] of the union.
void count_merged_rows(std::int64_t num_nodes, const std::vector<PlacedRows>& parts, std::int64_t* row_ptr);
// Fills the union's columns and, for every part, where its entries stand in the union.
void fill_merged_rows(std::int64_t num_nodes, const std::vector<PlacedRows>& parts,
                      const std::int64_t* row_ptr, std::int32_t* col, const std::vector<std::int64_t*>& slot);

}  // namespace topomask
