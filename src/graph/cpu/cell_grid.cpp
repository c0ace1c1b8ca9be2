#include "graph/cpu/cell_grid.h"

#include <algorithm>
#include <cmath>

namespace topomask {
namespace {

double number_of_cells(const std::array<double, 3>& extent, double side) {
  double total = 1;
  for (const double length : extent) total *= std::floor(length / side) + 1;
  return total;
}

// Fills cell_of (by point, for now) and cell_start (as counts, shifted by one). Returns how many cells are
// not empty.
std::int64_t count_cells(const PointSet& points, const std::array<double, 3>& extent, CellGrid& grid) {
  for (int a = 0; a < 3; ++a)
    grid.cells[a] = static_cast<std::int64_t>(std::floor(extent[a] / grid.side)) + 1;
  grid.cell_start.assign(static_cast<std::size_t>(grid.cells[0] * grid.cells[1] * grid.cells[2]) + 1, 0);
  const double per_side = 1 / grid.side;
  std::int64_t occupied = 0;
  for (std::int64_t i = 0; i < points.count; ++i) {
    std::int64_t cell = 0;
    for (std::int64_t a = points.dimension - 1; a >= 0; --a) {
      const auto along = static_cast<std::int64_t>((points.point(i)[a] - grid.low[a]) * per_side);
      cell = cell * grid.cells[a] + std::min(along, grid.cells[a] - 1);
    }
    grid.cell_of[i] = static_cast<std::int32_t>(cell);
    occupied += grid.cell_start[cell + 1]++ == 0;
  }
  return occupied;
}

void choose_side(const PointSet& points, double occupancy, const std::array<double, 3>& extent,
                 CellGrid& grid) {
  const double count = static_cast<double>(points.count), most_cells = 8 * count + 64;
  const double longest = *std::max_element(extent.begin(), extent.end());
  double volume = 1, axes = 0;
  for (const double length : extent) {
    if (length <= 0) continue;
    volume *= length / longest;
    ++axes;
  }
  double side = longest * std::pow(std::max(volume, 1e-30) * occupancy / count, 1 / axes);
  // Each round measures how full the cells are; the correction is exact for a surface and converges for the
  // rest.
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    while (number_of_cells(extent, side) > most_cells) side *= 1.1;
    if (side == grid.side) break;
    grid.side = side;
    const double measured = count / static_cast<double>(count_cells(points, extent, grid));
    if (measured < 1.4 * occupancy && measured > occupancy / 1.4) break;
    side = std::min(side * std::sqrt(occupancy / measured), 2 * longest);
  }
}

}  // namespace

CellGrid sort_into_cells(const PointSet& points, double occupancy) {
  CellGrid grid;
  std::array<double, 3> extent{};
  for (std::int64_t a = 0; a < points.dimension; ++a) {
    float low = points.point(0)[a], high = low;
    for (std::int64_t i = 1; i < points.count; ++i) {
      low = std::min(low, points.point(i)[a]);
      high = std::max(high, points.point(i)[a]);
    }
    grid.low[a] = low;
    extent[a] = static_cast<double>(high) - low;
    grid.rounding = std::max(grid.rounding, 1e-12 * extent[a]);
  }
  if (grid.rounding == 0) return grid;
  grid.cell_of.resize(static_cast<std::size_t>(points.count));
  choose_side(points, occupancy, extent, grid);

  for (std::size_t c = 1; c < grid.cell_start.size(); ++c) grid.cell_start[c] += grid.cell_start[c - 1];
  for (auto& axis : grid.axis) axis.assign(static_cast<std::size_t>(points.count + CellGrid::kPadding), 0.0f);
  grid.index.assign(static_cast<std::size_t>(points.count + CellGrid::kPadding), 0);
  std::vector<std::int32_t> next(grid.cell_start.begin(), grid.cell_start.end() - 1);
  std::vector<std::int32_t> sorted_cells(grid.cell_of.size());
  for (std::int64_t i = 0; i < points.count; ++i) {
    const std::int32_t position = next[grid.cell_of[i]]++;
    sorted_cells[position] = grid.cell_of[i];
    grid.index[position] = static_cast<std::int32_t>(i);
    for (std::int64_t a = 0; a < points.dimension; ++a) grid.axis[a][position] = points.point(i)[a];
  }
  grid.cell_of = std::move(sorted_cells);
  return grid;
}

}  // namespace topomask
