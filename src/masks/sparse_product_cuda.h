// M_hat = Phi Psi^T on a GPU; only built with CUDA.
#pragma once

#include <utility>

#include "masks/sparse_ops.h"

namespace topomask {

struct ProductRows {
  at::Tensor row_ptr;  // [N+1] int64
  at::Tensor col;      // [nnz] int32
};
ProductRows product_pattern_cuda(const SparsePattern& query, const SparsePattern& key);
double estimate_product_nnz_cuda(const SparsePattern& query, const SparsePattern& key, std::int64_t sample);
std::int64_t longest_row_cuda(const at::Tensor& row_ptr);
std::int64_t longest_column_cuda(const at::Tensor& col);

at::Tensor product_values_cuda(const ProductPatterns& patterns, const at::Tensor& query,
                               const at::Tensor& key);

// Gradients of the values of Phi and Psi. `shared`: both are the same values, whose whole gradient comes
// first and the second stays undefined.
std::pair<at::Tensor, at::Tensor> product_backward_cuda(const ProductPatterns& patterns,
                                                        const at::Tensor& query, const at::Tensor& key,
                                                        const at::Tensor& grad, bool shared);

}  // namespace topomask
