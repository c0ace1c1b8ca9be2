// Where rays are looked at: particle_rendering.h says which steps are taken.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "particles/cpu/occupied_steps.h"
#include "topomask/particle_rendering.h"

namespace topomask {

// P samples of B x R rays, in the order of clouds, rays and steps.
struct RaySamples {
  at::Tensor ray;       // [P] int64: cloud * R + ray
  at::Tensor slot;      // [P] int64: ray * options.samples + number of the sample within its ray
  at::Tensor distance;  // [P] float64, along the ray
  at::Tensor query;     // [P, 3] float64
  at::Tensor ptr;       // [B+1] int64 on the CPU: where the samples of a cloud begin
  // Of padded samples, which every ray has options.samples places for: [B R] int32, how many of them are
  // taken. Their queries and distances are in the type of the positions; queries of free places are not
  // numbers. `ray` and `slot` are undefined: places are in order.
  at::Tensor count;
  bool padded() const { return count.defined(); }
};

RaySteps ray_steps(const RendererOptions& options);

// positions: [B, N, 3] of float32 or float64, origins, directions: [B, R, 3] of float64; contiguous, on one
// device. Padded where the kernels of a GPU do it.
RaySamples ray_samples(const at::Tensor& positions, const at::Tensor& origins, const at::Tensor& directions,
                       const RendererOptions& options);

// The same of ATen operations, for devices without a kernel.
RaySamples composed_ray_samples(const at::Tensor& positions, const at::Tensor& origins,
                                const at::Tensor& directions, const RendererOptions& options);

}  // namespace topomask
