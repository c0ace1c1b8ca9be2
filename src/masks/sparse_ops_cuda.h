// The products of sparse_ops.h on a GPU. Only for sources that are built with CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include "topomask/mask.h"

namespace topomask {

// y_h = A_h x_h or A_h^T x_h; values: [1 or H, nnz], x: [H, N, C], both of one dtype, float32 or float64.
at::Tensor multiply_on_gpu(const SparsePattern& pattern, const at::Tensor& values, const at::Tensor& x,
                           bool transposed);

// dL/dvalues [value_heads, nnz] of the same.
at::Tensor value_gradient_on_gpu(const SparsePattern& pattern, const at::Tensor& grad_out,
                                 const at::Tensor& x, bool transposed, std::int64_t value_heads);

}  // namespace topomask
