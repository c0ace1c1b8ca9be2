#include "particles/ray_samples.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <limits>

#include "core/parallel.h"
#include "particles/gpu.h"

namespace topomask {

namespace {

constexpr std::int64_t kPositionsAtOnce = std::int64_t{1} << 22;  // of the composed search

// From the steps taken: step [P] int64, ray [P], and the number of samples of each ray [B * R] on the CPU or
// device.
RaySamples packed(const at::Tensor& ray, const at::Tensor& step, const at::Tensor& count,
                  const at::Tensor& origins, const at::Tensor& directions, const RendererOptions& options) {
  const std::int64_t clouds = origins.size(0), rays = origins.size(1);
  RaySamples result;
  result.ray = ray;
  const at::Tensor end = count.cumsum(0), begin = end - count;  // [B * R]
  const at::Tensor number = at::arange(ray.size(0), ray.options()) - begin.index_select(0, ray);
  result.slot = ray * options.samples + number;
  result.distance = (step.to(at::kDouble) + 0.5) * options.spacing + options.nearest;
  result.query = origins.view({-1, 3}).index_select(0, ray) +
                 result.distance.unsqueeze(1) * directions.view({-1, 3}).index_select(0, ray);
  const at::Tensor totals = count.view({clouds, rays}).sum(1).cumsum(0).cpu();
  result.ptr = at::cat({at::zeros({1}, totals.options()), totals});
  return result;
}

// [..., 3] -> [...] int64: the keys of cell_key().
at::Tensor cell_keys(const at::Tensor& points, double per_cell) {
  const auto farthest = static_cast<double>(kFarthestCell);
  const at::Tensor cells =
      (points * per_cell).floor().clamp(-farthest, farthest).to(at::kLong) + (kFarthestCell + 1);
  const std::vector<at::Tensor> axis = cells.unbind(-1);
  const std::int64_t unit = std::int64_t{1} << kCellBits;
  return axis[0] + axis[1] * unit + axis[2] * (unit * unit);
}

// [B, 9 N] int64, ascending: cells of particles, dilated along y and z. A neighbour along x has the key next
// to it.
at::Tensor sorted_cells(const at::Tensor& positions, double per_cell) {
  const std::int64_t unit = std::int64_t{1} << kCellBits;
  at::Tensor keys = cell_keys(positions.nan_to_num(0, 0, 0), per_cell);  // [B, N]
  std::vector<std::int64_t> beside;
  for (std::int64_t z = -1; z <= 1; ++z)
    for (std::int64_t y = -1; y <= 1; ++y) beside.push_back(y * unit + z * unit * unit);
  keys = keys.unsqueeze(-1) + at::tensor(beside, keys.options());
  keys = keys.masked_fill(positions.isfinite().all(-1).logical_not().unsqueeze(-1),
                          std::numeric_limits<std::int64_t>::max());
  return std::get<0>(keys.flatten(1).sort(1));
}

}  // namespace

RaySteps ray_steps(const RendererOptions& options) {
  return {options.nearest, options.spacing, options.cell, options.steps(), options.samples};
}

RaySamples ray_samples(const at::Tensor& given, const at::Tensor& origins, const at::Tensor& directions,
                       const RendererOptions& options) {
  if (particles_run_on_cuda(given)) return ray_samples_cuda(given, origins, directions, options);
  const at::Tensor positions = given.to(at::kDouble);
  if (!positions.is_cpu()) return composed_ray_samples(positions, origins, directions, options);
  const std::int64_t clouds = origins.size(0), rays = origins.size(1), particles = positions.size(1);
  const RaySteps steps = ray_steps(options);
  const at::Tensor found = at::empty({clouds * rays, steps.limit}, at::kInt),
                   count = at::empty({clouds * rays}, at::kLong);
  for (std::int64_t b = 0; b < clouds; ++b) {
    const OccupiedCells cells(positions.const_data_ptr<double>() + b * particles * 3, particles,
                              steps.per_cell());
    occupied_steps(cells, steps, origins.const_data_ptr<double>() + b * rays * 3,
                   directions.const_data_ptr<double>() + b * rays * 3, rays,
                   found.mutable_data_ptr<std::int32_t>() + b * rays * steps.limit,
                   count.mutable_data_ptr<std::int64_t>() + b * rays);
  }
  const at::Tensor ray = at::repeat_interleave(at::arange(clouds * rays, at::kLong), count),
                   step = at::empty({ray.size(0)}, at::kLong);
  const std::int32_t* from = found.const_data_ptr<std::int32_t>();
  const std::int64_t* counts = count.const_data_ptr<std::int64_t>();
  auto* to = step.mutable_data_ptr<std::int64_t>();
  for (std::int64_t r = 0; r < clouds * rays; ++r) to = std::copy_n(from + r * steps.limit, counts[r], to);
  return packed(ray, step, count, origins, directions, options);
}

RaySamples composed_ray_samples(const at::Tensor& positions, const at::Tensor& origins,
                                const at::Tensor& directions, const RendererOptions& options) {
  const std::int64_t clouds = origins.size(0), rays = origins.size(1);
  const RaySteps steps = ray_steps(options);
  const at::Tensor cells = sorted_cells(positions, steps.per_cell());
  const at::Tensor distance =
      (at::arange(steps.steps, origins.options()) + 0.5) * steps.spacing + steps.nearest;
  std::vector<at::Tensor> taken;  // [B, rays of a part, steps] bool
  const std::int64_t part =
      std::max<std::int64_t>(1, kPositionsAtOnce / std::max<std::int64_t>(1, clouds * steps.steps));
  for (std::int64_t begin = 0; begin < rays; begin += part) {
    const std::int64_t size = std::min(part, rays - begin);
    const at::Tensor points = origins.narrow(1, begin, size).unsqueeze(2) +
                              distance.view({1, 1, -1, 1}) * directions.narrow(1, begin, size).unsqueeze(2);
    const at::Tensor keys = cell_keys(points, steps.per_cell()).flatten(1);  // [B, size * steps]
    at::Tensor occupied = at::zeros_like(keys, at::kBool);
    if (cells.size(1) > 0) {
      const at::Tensor place = at::searchsorted(cells, keys - 1);
      const at::Tensor next = cells.gather(1, place.clamp_max(cells.size(1) - 1));
      occupied = place.lt(cells.size(1)).logical_and(next.le(keys + 1));
    }
    occupied = occupied.view({clouds, size, steps.steps});
    taken.push_back(occupied.logical_and(occupied.cumsum(2).le(steps.limit)));
  }
  const at::Tensor all = taken.empty()
                             ? at::zeros({clouds, rays, steps.steps}, origins.options().dtype(at::kBool))
                             : at::cat(taken, 1);
  const at::Tensor place = all.view({clouds * rays, steps.steps}).nonzero();  // [P, 2], waits
  return packed(place.select(1, 0).contiguous(), place.select(1, 1).contiguous(),
                all.view({clouds * rays, steps.steps}).sum(1), origins, directions, options);
}

}  // namespace topomask
