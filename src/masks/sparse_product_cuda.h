// M_hat = Phi Psi^T on a GPU; only built with CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "masks/sparse_ops.h"

namespace topomask {

// More products than `max_pairs` are found anew at every call instead of being listed; by default more than
// fit into a list of a 32nd of the device's memory.
ProductPatterns make_product_patterns_cuda(std::shared_ptr<const SparsePattern> query,
                                           std::shared_ptr<const SparsePattern> key,
                                           std::optional<std::int64_t> max_pairs = {});
// For patterns that are there already.
std::shared_ptr<ProductOnDevice> describe_product_cuda(const ProductPatterns& patterns,
                                                       std::optional<std::int64_t> max_pairs = {});
double estimate_product_nnz_cuda(const SparsePattern& query, const SparsePattern& key, std::int64_t sample);

at::Tensor product_values_cuda(const ProductPatterns& patterns, const at::Tensor& query,
                               const at::Tensor& key);

// Gradients of the values of Phi and Psi. `shared`: both are the same values, whose whole gradient comes
// first and the second stays undefined.
std::pair<at::Tensor, at::Tensor> product_backward_cuda(const ProductPatterns& patterns,
                                                        const at::Tensor& query, const at::Tensor& key,
                                                        const at::Tensor& grad, bool shared);

}  // namespace topomask
