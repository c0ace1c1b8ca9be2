// The sparse product M = Phi Psi^T for graphs whose rows of M are short, on machines with AVX-512.
//
// Row i of M is a sum of columns of Psi, one for each entry of row i of Phi. Both list their nodes in
// ascending order, so a column's values go to the row's places in the order in which they stand: a 16-bit
// mask says which places of a chunk they take, and one instruction (expand) moves them there. No index is
// followed, nothing is scattered; the masks are made once per graph.
#pragma once

#include <cstdint>
#include <vector>

#include "masks/cpu/spmm.h"

namespace topomask {

struct Expansions {
  std::vector<std::int64_t> first;      // [num_rows+1]: where the masks of a row's entries begin
  std::vector<std::uint16_t> mask;      // row by row, entry of Phi by entry, chunk of 16 places of M by chunk
  std::vector<std::int32_t> column;     // [nnz(Phi)]: where the column of Psi that an entry meets begins
  std::vector<std::int32_t> key_entry;  // [nnz(Psi)]: the entries of Psi column by column
  std::int64_t pairs = 0;               // products that M sums

  bool empty() const { return first.empty(); }
};

// Empty where the machine has no AVX-512 or where rows are so long that most masks would be zero.
Expansions make_expansions(const SparseRows& query, const SparseRows& key_columns, const SparseRows& product);

// The values of Psi column by column, and a vector's width of zeros behind them: what both passes below read.
std::int64_t column_values_size(const Expansions& expansions);
void column_values(const Expansions& expansions, const float* key_value, float* column_value);

// value[p = (i, j)] = sum_q query_value[i, q] key_value[j, q], as product_values.
void expanded_product_values(const Expansions& expansions, const SparseRows& query, const float* query_value,
                             const float* column_value, const SparseRows& product, float* value);

// grad_query[i, q] = sum_j (grad[i, j] + grad[mirror of (i, j)]) key_value[j, q]; mirror null: no second
// term. With the mirror it is the whole gradient of M = Phi Phi^T.
void expanded_product_backward(const Expansions& expansions, const SparseRows& query,
                               const float* column_value, const SparseRows& product,
                               const std::int64_t* mirror, const float* grad, float* grad_query);

}  // namespace topomask
