// Steps along rays that are worth a look, on a GPU: those of cpu/occupied_steps.h, with places reserved for
// all steps of a ray, so that nothing has to be counted first. Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "particles/cpu/occupied_steps.h"

namespace topomask::cuda {

// Cells of each cloud in its own table with open addressing; all tables have the same size.
std::int64_t cell_table_size(std::int64_t particles);

struct RaySlots {
  std::int64_t clouds = 0, particles = 0, rays = 0;  // particles and rays of each cloud
  RaySteps steps;
  bool is_double = false;                                // positions, query and distance; else float32
  const void* position = nullptr;                        // [clouds, particles, 3]
  const double *origin = nullptr, *direction = nullptr;  // [clouds, rays, 3]
  std::int64_t* table = nullptr;                         // [clouds, cell_table_size()]
  // [clouds * rays, steps.limit, 3] and without 3: the steps that are taken, in ascending order. Places that
  // are left have a query that is not a number and distance 0.
  void *query = nullptr, *distance = nullptr;
  std::int32_t* count = nullptr;  // [clouds * rays]: steps that are taken
};
cudaError_t take_ray_slots(const RaySlots& slots, cudaStream_t stream);

}  // namespace topomask::cuda
