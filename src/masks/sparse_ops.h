// Differentiable products with sparse matrices whose pattern is fixed and whose values may be learned.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "masks/cpu/expanded_product.h"
#include "masks/cpu/spmm.h"
#include "topomask/mask.h"

namespace topomask {

SparseRows rows_of(const SparsePattern& pattern);             // the matrix
SparseRows transposed_rows_of(const SparsePattern& pattern);  // its transpose, sharing the values

// [nnz] int32 or int64: the row of each entry; 0 for those that only pad the pattern.
at::Tensor entry_rows(const SparsePattern& pattern);

// y_h = A_h x_h, or A_h^T x_h. values: [1 or H, nnz], x: [H, N, C]; differentiable in both.
at::Tensor sparse_matmul(const std::shared_ptr<const SparsePattern>& pattern, const at::Tensor& values,
                         const at::Tensor& x, bool transposed);

// The matrices themselves, [H, N, N], of values [H, nnz]; differentiable in them.
at::Tensor write_out(const SparsePattern& pattern, const at::Tensor& values);

// Patterns of Phi, Psi and of M = Phi Psi^T, and what every product with them needs.
struct ProductOnDevice;  // sparse_product_cuda.cpp
struct ProductPatterns {
  std::shared_ptr<const SparsePattern> query, key, product;
  std::shared_ptr<const Expansions> expansions = {};  // of the CPU; may be empty or null
  std::shared_ptr<ProductOnDevice> on_device = {};    // what a GPU knows of them; null on the CPU
};
ProductPatterns make_product_patterns(std::shared_ptr<const SparsePattern> query,
                                      std::shared_ptr<const SparsePattern> key);

// What a GPU derives from three existing patterns.
std::shared_ptr<ProductOnDevice> describe_product_on_device(const ProductPatterns& patterns);

// Values of M from those of Phi and Psi: [H, nnz(Phi)], [H, nnz(Psi)] -> [H, nnz(M)]; differentiable in both.
at::Tensor sparse_product(const ProductPatterns& patterns, const at::Tensor& query_values,
                          const at::Tensor& key_values);
// The backward pass: gradients of the values of Phi and Psi from those of M. Where both are one tensor, the
// first is the sum and the second undefined. Records no graph.
std::pair<at::Tensor, at::Tensor> sparse_product_gradients(const ProductPatterns& patterns,
                                                           const at::Tensor& query_values,
                                                           const at::Tensor& key_values,
                                                           const at::Tensor& of_product);

}  // namespace topomask
