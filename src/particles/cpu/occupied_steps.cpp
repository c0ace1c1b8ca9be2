#include "particles/cpu/occupied_steps.h"

#include <algorithm>
#include <bit>

#include "core/parallel.h"

namespace topomask {

namespace {

constexpr std::int64_t kUnit[] = {1, std::int64_t{1} << kCellBits, std::int64_t{1} << (2 * kCellBits)};

}  // namespace

std::int64_t cell_key(const double* point, double per_cell) {
  constexpr auto kFarthest = static_cast<double>(kFarthestCell);
  std::int64_t key = 0;
  for (int a = 0; a < 3; ++a) {
    const double cell = std::clamp(std::floor(point[a] * per_cell), -kFarthest, kFarthest);
    key += (static_cast<std::int64_t>(cell) + kFarthestCell + 1) * kUnit[a];
  }
  return key;
}

void OccupiedCells::make_room(std::int64_t keys) {
  const std::uint64_t size = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(2 * keys, 16)));
  slots_.assign(size, -1);
  mask_ = size - 1;
}

bool OccupiedCells::insert(std::int64_t key) {
  for (std::uint64_t slot = first_slot(key);; slot = (slot + 1) & mask_) {
    if (slots_[slot] == key) return false;
    if (slots_[slot] < 0) {
      slots_[slot] = key;
      return true;
    }
  }
}

OccupiedCells::OccupiedCells(const double* points, std::int64_t count, double per_cell) {
  // Many particles share a cell: find the cells first, and dilate those.
  make_room(count);
  std::vector<std::int64_t> own;
  for (const double* point = points; point != points + 3 * count; point += 3) {
    if (!std::isfinite(point[0]) || !std::isfinite(point[1]) || !std::isfinite(point[2])) continue;
    const std::int64_t key = cell_key(point, per_cell);
    if (insert(key)) own.push_back(key);
  }
  make_room(27 * static_cast<std::int64_t>(own.size()));
  for (const std::int64_t key : own) {
    for (std::int64_t z = -1; z <= 1; ++z)
      for (std::int64_t y = -1; y <= 1; ++y)
        for (std::int64_t x = -1; x <= 1; ++x) insert(key + x * kUnit[0] + y * kUnit[1] + z * kUnit[2]);
  }
}

void occupied_steps(const OccupiedCells& cells, const RaySteps& rays, const double* origins,
                    const double* directions, std::int64_t num_rays, std::int32_t* step,
                    std::int64_t* count) {
  const double per_cell = rays.per_cell();
  for_runs(num_rays, 256, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::int64_t found = 0, last_key = -1;
      bool last = false;
      for (std::int64_t s = 0; s < rays.steps && found < rays.limit; ++s) {
        const double t = rays.distance(s);
        double point[3];
        for (int a = 0; a < 3; ++a) point[a] = origins[3 * r + a] + t * directions[3 * r + a];
        const std::int64_t key = cell_key(point, per_cell);
        if (key != last_key) {  // steps are shorter than cells: most fall into the cell before
          last_key = key;
          last = cells.holds(key);
        }
        if (last) step[r * rays.limit + found++] = static_cast<std::int32_t>(s);
      }
      count[r] = found;
    }
  });
}

}  // namespace topomask
