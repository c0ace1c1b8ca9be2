// Sparse matrix times dense columns, and its companion: dot products at the nonzeros.
#pragma once

#include <cstdint>

namespace topomask {

// Rows of a sparse matrix; `entry` says where each value stands (null: in order), so that a transpose can
// share the values of the matrix.
struct SparseRows {
  std::int64_t num_rows = 0;
  const std::int64_t* row_ptr = nullptr;  // [num_rows+1]
  const std::int32_t* col = nullptr;      // [nnz]
  const std::int64_t* entry = nullptr;    // [nnz] or null
  std::int64_t num_columns = -1;          // -1: as many as rows

  std::int64_t columns() const { return num_columns < 0 ? num_rows : num_columns; }
  std::int64_t nnz() const { return row_ptr[num_rows]; }
};

// y[i, :] = sum_p value[p] x[col[p], :]; x and y have `columns` columns, row major. Adds to y if
// `accumulate`.
template <class T>
void spmm(const SparseRows& matrix, const T* value, const T* x, std::int64_t columns, bool accumulate, T* y);

// out[p] += <a[i, :], b[col[p], :]> for every nonzero p = (i, col).
template <class T>
void sampled_dots(const SparseRows& matrix, const T* a, const T* b, std::int64_t columns, T* out);

// Splits the rows into `pieces` runs of about equal work (nonzeros plus one per row); returns the first row
// of run `piece`, and num_rows for piece = pieces.
std::int64_t balanced_row(const SparseRows& matrix, std::int64_t piece, std::int64_t pieces);

// Runs of work for for_runs: several per thread, each large enough to be worth starting.
std::int64_t runs_for_threads(const SparseRows& matrix);

}  // namespace topomask
