// Masks on a GPU: patterns as the kernels read them, products with them, and M_hat = Phi Psi^T.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "masks/cuda/device_rows.h"
#include "masks/forest_ops.h"
#include "masks/sparse_ops.h"
#include "topomask/mask.h"

namespace topomask {

// The transpose, computed once if the pattern came without.
struct TransposedPattern {
  at::Tensor ptr, row, entry;  // as in SparsePattern
};
TransposedPattern transpose_of(const SparsePattern& pattern);

// Pointers into the pattern and into what it derives: they live as long as it does.
DeviceRows device_rows(const SparsePattern& pattern);
DeviceRows device_columns(const SparsePattern& pattern);  // rows of the transpose

// The same rows in tiles, where enough of them share a column. Made at the second call; that takes the host's
// waiting, so padded patterns and CUDA graphs have none.
std::optional<RowTiles> row_tiles(const SparsePattern& pattern, const DeviceRows& rows);

// Room for values of a pattern: 0 where it is padded, for kernels write the entries of rows alone.
at::Tensor empty_values(const SparsePattern& pattern, at::IntArrayRef sizes,
                        const at::TensorOptions& options);

// y_h = A_h x_h or A_h^T x_h; values: [1 or H, nnz], x: [H, N, C], both of one dtype, float32 or float64.
at::Tensor multiply_cuda(const SparsePattern& pattern, const at::Tensor& values, const at::Tensor& x,
                         bool transposed);
// dL/dvalues [value_heads, nnz] of the same.
at::Tensor value_gradient_cuda(const SparsePattern& pattern, const at::Tensor& grad_out, const at::Tensor& x,
                               bool transposed, std::int64_t value_heads);

// More products than `max_pairs` are searched for in every call instead of being listed; by default more than
// fit into a list of a 32nd of the device's memory.
ProductPatterns make_product_patterns_cuda(std::shared_ptr<const SparsePattern> query,
                                           std::shared_ptr<const SparsePattern> key,
                                           std::optional<std::int64_t> max_pairs = {});
// For existing patterns.
std::shared_ptr<ProductOnDevice> describe_product_cuda(const ProductPatterns& patterns,
                                                       std::optional<std::int64_t> max_pairs = {});
// As estimate_product_nnz.
double estimate_product_nnz_cuda(const SparsePattern& query, const SparsePattern& key, std::int64_t sample);
// [H, nnz(Phi)], [H, nnz(Psi)] -> [H, nnz(M)].
at::Tensor product_values_cuda(const ProductPatterns& patterns, const at::Tensor& query,
                               const at::Tensor& key);
// Gradients of the values of Phi and Psi. `shared`: both are the same values, whose whole gradient comes
// first and the second stays undefined.
std::pair<at::Tensor, at::Tensor> product_backward_cuda(const ProductPatterns& patterns,
                                                        const at::Tensor& query, const at::Tensor& key,
                                                        const at::Tensor& grad, bool shared);

// The forest level by level on the device.
std::shared_ptr<const ForestOnDevice> forest_on_cuda(const RootedForest& forest, c10::Device device);
// As forest_product; derivative may be undefined. All tensors contiguous, [H] and [H, N, C].
void forest_product_cuda(const ForestOnDevice& forest, const at::Tensor& a, const at::Tensor& x,
                         const at::Tensor& y, const at::Tensor& derivative);

// y_h = exp(-t_h L) y_h in place; t: [H], y: [H, 2^dimension, C], contiguous.
void hypercube_heat_cuda(int dimension, const at::Tensor& t, const at::Tensor& y);
// L z; z: [H, 2^dimension, C], contiguous.
at::Tensor hypercube_laplacian_cuda(int dimension, const at::Tensor& z);

// table [H, size] at keys [N, N] uint8 -> [H, N, N]; all contiguous.
at::Tensor look_up_cuda(const at::Tensor& keys, const at::Tensor& table);
// dL/dtable [H, size] from dL/dout [H, N, N].
at::Tensor look_up_backward_cuda(const at::Tensor& keys, const at::Tensor& grad_out, std::int64_t size);

}  // namespace topomask
