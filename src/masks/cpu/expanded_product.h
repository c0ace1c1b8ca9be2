// The sparse product M = Phi Psi^T for graphs whose rows of M are short, on machines with AVX-512.
//
// Row i of M is a sum of columns of Psi, one for each entry of row i of Phi. Both list their nodes in
// ascending order, so a column's values go to the row's places in the order in which they stand: a 16-bit
// mask says which places of a chunk they take, and one instruction (expand) moves them there. No index is
// followed, nothing is scattered; the masks are made once per graph.
#pragma once

#include <cstdint>

#include "core/unfilled_vector.h"
#include "masks/cpu/spmm.h"

namespace topomask {

struct Expansions {
  UnfilledVector<std::int64_t> first;   // [num_rows+1]: where the masks of a row's entries begin
  UnfilledVector<std::uint16_t> mask;   // row by row, entry of Phi by entry, chunk of 16 places of M by chunk
  UnfilledVector<std::int32_t> column;  // [nnz(Phi)]: where the column of Psi that an entry meets begins
  UnfilledVector<std::int32_t> key_entry;  // [nnz(Psi)]: the entries of Psi column by column
  UnfilledVector<std::int32_t> mirror;  // [nnz(M)] for M = Phi Phi^T: where the entry (j, i) of (i, j) stands
  std::int64_t pairs = 0;               // products that M sums

  bool empty() const { return first.empty(); }
};

// Empty where the machine has no AVX-512 or where rows are so long that most masks would be zero.
// product_columns: the transpose of `product` if M = Phi Phi^T, else null.
Expansions make_expansions(const SparseRows& query, const SparseRows& key_columns, const SparseRows& product,
                           const SparseRows* product_columns);

// The values of Psi column by column, and a vector's width of zeros behind them: what both passes below read.
std::int64_t column_values_size(const Expansions& expansions);
void column_values(const Expansions& expansions, const float* key_value, float* column_value);

// value[p = (i, j)] = sum_q query_value[i, q] key_value[j, q], as product_values.
void expanded_product_values(const Expansions& expansions, const SparseRows& query, const float* query_value,
                             const float* column_value, const SparseRows& product, float* value);

// grad_query[i, q] = sum_j grad[i, j] key_value[j, q]; `square`: with grad[i, j] + grad[j, i] instead, which
// makes it the whole gradient of M = Phi Phi^T.
void expanded_product_backward(const Expansions& expansions, const SparseRows& query,
                               const float* column_value, const SparseRows& product, bool square,
                               const float* grad, float* grad_query);

}  // namespace topomask
