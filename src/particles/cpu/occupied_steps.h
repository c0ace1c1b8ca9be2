// Which steps along a ray are worth a look: those whose cell of a grid, or a cell that touches it, holds a
// particle.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace topomask {

// The middle of step s lies at origin + (nearest + (s + 1/2) spacing) direction.
struct RaySteps {
  double nearest = 0, spacing = 0;
  double cell = 0;         // side of a cell of the grid
  std::int64_t steps = 0;  // along a ray
  std::int64_t limit = 0;  // how many of them are kept

  double distance(std::int64_t step) const { return nearest + (static_cast<double>(step) + 0.5) * spacing; }
  double per_cell() const { return 1 / cell; }
};

// A cell as one number: 21 bits per axis, x lowest, so that cells in a row along x have consecutive keys.
// Cells beyond kFarthestCell (26 km at 2.5 cm) are taken for the last one.
inline constexpr int kCellBits = 21;
inline constexpr std::int64_t kFarthestCell = (std::int64_t{1} << (kCellBits - 1)) - 2;

// Dilated by one cell along all axes.
class OccupiedCells {
 public:
  // points: [count, 3]; those that are not finite occupy nothing.
  OccupiedCells(const double* points, std::int64_t count, double per_cell);
  bool holds(std::int64_t key) const {
    for (std::uint64_t slot = first_slot(key);; slot = (slot + 1) & mask_) {
      if (slots_[slot] == key) return true;
      if (slots_[slot] < 0) return false;
    }
  }

 private:
  std::uint64_t first_slot(std::int64_t key) const {
    return (static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15ull >> 20) & mask_;
  }
  bool insert(std::int64_t key);
  void make_room(std::int64_t keys);

  std::vector<std::int64_t> slots_;  // open addressing; -1: free
  std::uint64_t mask_ = 0;
};

// The key of the cell that a point is in; its coordinates must be finite.
std::int64_t cell_key(const double* point, double per_cell);

// step: [rays, limit], the first `limit` occupied steps of each ray in ascending order; count: [rays].
// origins, directions: [rays, 3], finite.
void occupied_steps(const OccupiedCells& cells, const RaySteps& rays, const double* origins,
                    const double* directions, std::int64_t num_rays, std::int32_t* step, std::int64_t* count);

}  // namespace topomask
