// M = Phi Psi^T as a sparse matrix: the pattern once per graph, the values whenever f has changed.
#pragma once

#include <cstdint>

#include "core/unfilled_vector.h"
#include "masks/cpu/spmm.h"

namespace topomask {

// Pattern of the product: row i holds every j whose feature shares a column with that of i, ascending.
// `key_columns`: the transpose of Psi.
struct ProductPattern {
  UnfilledVector<std::int64_t> row_ptr;
  UnfilledVector<std::int32_t> col;
};
ProductPattern product_pattern(const SparseRows& query, const SparseRows& key_columns);

// How many entries the pattern has, counted on `sample` evenly spread rows and scaled up.
double estimate_product_nnz(const SparseRows& query, const SparseRows& key_columns, std::int64_t sample);

// value[p = (i, j)] = sum_q query_value[i, q] key_value[j, q].
template <class T>
void product_values(const SparseRows& query, const T* query_value, const SparseRows& key_columns,
                    const T* key_value, const SparseRows& product, T* value);

// grad_query[i, q] = sum_j grad[i, j] key_value[j, q]. With query and key exchanged and the product
// transposed, this is the gradient of the key values as well.
template <class T>
void product_backward(const SparseRows& query, const SparseRows& key_columns, const T* key_value,
                      const SparseRows& product, const T* grad, T* grad_query);

}  // namespace topomask
