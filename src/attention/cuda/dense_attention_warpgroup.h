// The `dense` engine on the warpgroup instructions of compute capability 9.0, which no other device has. The
// launches of dense_attention.h come here where a problem fits, if TOPOMASK_WARPGROUP says that this was
// built.
#pragma once

#include "attention/cuda/dense_attention.h"

namespace topomask {

bool warpgroup_forward_fits(const DenseAttention& a);
cudaError_t warpgroup_forward(const DenseAttention& a, const DenseForward& f, cudaStream_t stream);

bool warpgroup_backward_fits(const DenseAttention& a);
cudaError_t warpgroup_backward(const DenseAttention& a, const DenseBackward& g, cudaStream_t stream);

bool warpgroup_mask_gradient_fits(const DenseAttention& a);
std::int64_t warpgroup_mask_gradient_workspace(const DenseAttention& a);
cudaError_t warpgroup_mask_gradient(const DenseAttention& a, const DenseMaskGradient& g, cudaStream_t stream);

}  // namespace topomask
