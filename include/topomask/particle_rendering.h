// Pictures of particles: colours along rays, differentiable in the particles (paper, section 4 "point clouds"
// and appendix C; the renderer resembles Point-NeRF, Xu et al. 2022).
//
// A ray is sampled in steps of `spacing` from `nearest` to `farthest`, and only near particles: at the first
// `samples` steps whose cell of a grid of side `cell`, or a cell that touches it, holds a particle. At such a
// point q the nearest `neighbours` particles (x_k, f_k) are summed over rings,
//
//   w_kr = exp(-((|x_k - q| - radius_r) / bandwidth_r)^2),   m_r = sum_k w_kr,
//   h    = MLP of all  sum_k w_kr f_k / (m_r + 1e-3)  and  log(1 + m_r),
//
// density and colour follow from h, and samples are composited front to back on white:
//
//   sigma = 100 softplus(density(h) - 1),   rgb = sigmoid(MLP([h, direction])),
//   alpha = 1 - exp(-sigma spacing).
//
// Samples, sums over rings and, on a GPU, compositing have their own kernels, forward and backward. No sum
// uses atomics: two runs give the same bits. On a GPU every ray has `samples` places, so that the host need
// not wait for the number used. Elsewhere the same is composed of ATen operations. All devices take the same
// samples.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace topomask {

struct RendererOptions {
  std::int64_t features = 16;    // of a particle
  std::int64_t neighbours = 16;  // particles that a sample sees
  std::int64_t hidden = 64;      // width of the MLPs
  std::int64_t samples = 32;     // at most, of a ray
  std::vector<double> radii = {0, .01, .02, .05}, bandwidths = {.01, .01, .01, .05};  // metres
  double nearest = .1, farthest = 2, spacing = .01, cell = .025;                      // metres

  std::int64_t rings() const { return static_cast<std::int64_t>(radii.size()); }
  std::int64_t inputs() const { return rings() * (features + 1); }  // of the MLP
  std::int64_t steps() const;                                       // from nearest to farthest
};

// Throws one sentence if the options mean nothing.
void check_renderer(const RendererOptions& options);

struct LinearWeights {
  at::Tensor weight, bias;  // [out, in], [out]
};

// All of one floating-point type.
struct RendererWeights {
  LinearWeights trunk1, trunk2;    // inputs() -> hidden -> hidden, ReLU after each
  LinearWeights density;           // hidden -> 1
  LinearWeights colour1, colour2;  // hidden + 3 -> hidden -> 3, ReLU between
};

struct Rendered {
  at::Tensor colour;   // [B, R, 3], 0 to 1
  at::Tensor opacity;  // [B, R], 0 to 1: how much of the background is hidden
  // [B, R] metres along the ray: the mean over what is seen, the background counted at `farthest`.
  at::Tensor depth;
};

// positions: [B, N, 3], features: [B, N, F], origins and directions (unit length): [B, R, 3], in metres.
// Differentiable in positions, features and weights; not in the rays. Rays that meet nothing are white; N may
// be 0 or less than `neighbours`. On a CPU, what is not finite and directions of another length are errors;
// on a GPU they are not looked for, and a particle that is not finite is not seen. Memory is proportional to
// the samples taken (on a GPU: to the places for them); without gradients, rays are rendered in parts.
Rendered render_particles(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& origins,
                          const at::Tensor& directions, const RendererWeights& weights,
                          const RendererOptions& options = {});

}  // namespace topomask
