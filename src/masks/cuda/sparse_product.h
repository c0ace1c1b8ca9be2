// M = Phi Psi^T as a sparse matrix on a GPU: the pattern once per graph, the values and their gradient
// whenever f has changed. Framework-free; as masks/cpu/sparse_product.h, with device pointers and all heads
// at once.
//
// Row i of M gathers the columns of Psi^T that row i of Phi names; a warp takes a row and keeps it in shared
// memory, a block takes a long row. Values are read head by head within an entry, [nnz, heads], so that one
// gather serves up to eight heads. No sum depends on the grid, and nothing is added atomically.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "masks/cpu/spmm.h"

namespace topomask::cuda {

// Pattern of the product in two passes over the rows first_row + r * row_step: `col` null counts the entries
// of each, a second call writes them.
struct ProductPatternArguments {
  SparseRows query;        // Phi
  SparseRows key_columns;  // Psi^T; `entry` is not read
  std::int64_t num_rows = 0, row_step = 1;
  std::int32_t* count = nullptr;          // [num_rows] out, first pass
  const std::int64_t* row_ptr = nullptr;  // [num_rows+1] second pass
  std::int32_t* col = nullptr;            // [nnz] out, second pass
  std::int32_t* long_rows = nullptr;      // [num_rows] rows that need a block; made by the first pass
  unsigned* num_long = nullptr;           // [1] zero before the first pass
  unsigned* bitmap = nullptr;             // [LongRowBitmaps::total] zero
};
// Rows that are too long for a warp are found by so many blocks, each with a bit for every column.
struct LongRowBitmaps {
  std::int64_t words = 0;  // of one
  bool in_shared = false;  // in shared memory
  std::int64_t blocks = 0;

  std::int64_t total() const { return in_shared ? 0 : words * blocks; }  // in global memory
};
LongRowBitmaps long_row_bitmaps(std::int64_t num_columns);
cudaError_t product_pattern(const ProductPatternArguments& arguments, cudaStream_t stream);

// value[h, p = (i, j)] = sum_q query_value[i, q, h] key_value[j, q, h], in the order of q: bit for bit as on
// the CPU.
template <class T>
struct ProductValuesArguments {
  SparseRows query, key_columns, product;  // Phi, Psi^T, M
  std::int64_t nnz = 0, longest_row = 0;   // of M
  std::int64_t heads = 0;
  const T* query_value = nullptr;  // [nnz(Phi), heads]
  const T* key_value = nullptr;    // [nnz(Psi), heads]
  T* value = nullptr;              // [heads, nnz(M)] out
};
template <class T>
cudaError_t product_values(const ProductValuesArguments<T>& arguments, cudaStream_t stream);

// grad_query[i, q, h] = sum_j grad[i, j, h] key_value[j, q, h]. With query and key exchanged and the product
// transposed, this is the gradient of the key values as well. Where both are the same values on a symmetric
// pattern, grad[i, j] + grad[j, i] in the place of grad[i, j] gives both at once.
template <class T>
struct ProductBackwardArguments {
  SparseRows query, key_columns, product;
  std::int64_t longest_row = 0;
  std::int64_t heads = 0;
  const T* grad = nullptr;       // [nnz(M), heads]
  const T* key_value = nullptr;  // [nnz(Psi), heads]
  T* grad_query = nullptr;       // [nnz(Phi), heads] out
};
template <class T>
cudaError_t product_backward(const ProductBackwardArguments<T>& arguments, cudaStream_t stream);

// out[p, h] = values[p, h] + values[mirror[p], h], all [nnz, heads]: a symmetric pattern's values and their
// transpose, if mirror[p] is where (j, i) stands for the (i, j) of p.
template <class T>
cudaError_t add_mirror_image(const T* values, const std::int64_t* mirror, std::int64_t nnz,
                             std::int64_t heads, T* out, cudaStream_t stream);

}  // namespace topomask::cuda
