// Samples along rays to colours on a GPU, front to back on white (topomask/particle_rendering.h), forward and
// backward. Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask::cuda {

enum class SampleType { float32, bfloat16, float16, float64 };

// "wide" is double for float64 and float for everything else. Each ray has `places` places for samples, of
// which count[ray] are taken; the others are not read.
struct Composite {
  std::int64_t rays = 0, places = 0;
  SampleType type = SampleType::float32;
  double density_scale = 0, spacing = 0, farthest = 0;
  const void* density = nullptr;        // [rays, places]: sigma = density_scale softplus(. - 1)
  const void* colour = nullptr;         // [rays, places, 3]: before the sigmoid
  const void* distance = nullptr;       // wide [rays, places]
  const std::int32_t* count = nullptr;  // [rays]
  // wide [rays, places]: optical depth in front of a sample; written by the forward pass
  void* in_front = nullptr;
};

struct CompositeOut {
  void *colour = nullptr, *opacity = nullptr, *depth = nullptr;  // wide [rays, 3], [rays], [rays]
};
cudaError_t composite_forward(const Composite& c, const CompositeOut& out, cudaStream_t stream);

struct CompositeGradients {
  const void *colour = nullptr, *opacity = nullptr, *depth = nullptr;  // as CompositeOut; null: 0
  void *of_density = nullptr, *of_colour = nullptr;  // as density and colour; 0 in free places
};
cudaError_t composite_backward(const Composite& c, const CompositeGradients& gradients, cudaStream_t stream);

}  // namespace topomask::cuda
