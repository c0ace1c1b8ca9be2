// The renderer's kernels on a GPU (src/particles/cuda). Each function does what its namesake without _cuda
// does with CUDA tensors; in builds without CUDA nothing runs on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "particles/ray_samples.h"
#include "topomask/particle_rendering.h"

namespace topomask {

// CUDA tensors of float32 or float64.
bool particles_run_on_cuda(const at::Tensor& positions);

// Padded, so that the device is not waited for. positions in the type of the queries.
RaySamples ray_samples_cuda(const at::Tensor& positions, const at::Tensor& origins,
                            const at::Tensor& directions, const RendererOptions& options);

// Contiguous tensors as in ring_features.h; no autograd.
at::Tensor ring_sums_cuda(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& queries,
                          const at::Tensor& index, const std::vector<double>& radii,
                          const std::vector<double>& bandwidths);
// Gradients of positions and features.
std::pair<at::Tensor, at::Tensor> ring_sums_backward_cuda(const at::Tensor& positions,
                                                          const at::Tensor& features,
                                                          const at::Tensor& queries, const at::Tensor& index,
                                                          const std::vector<double>& radii,
                                                          const std::vector<double>& bandwidths,
                                                          const at::Tensor& out, const at::Tensor& grad);

// Of padded samples: density [B, R, samples] and colour [B, R, samples, 3] before softplus and sigmoid, in
// any floating-point type. Differentiable in both.
Rendered composited_cuda(const at::Tensor& density, const at::Tensor& colour, const RaySamples& samples,
                         double density_scale, const RendererOptions& options);

}  // namespace topomask
