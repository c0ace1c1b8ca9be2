#include "graph/cpu/cell_grid.h"

#include <algorithm>
#include <cmath>

namespace topomask {
namespace {

using Extent = std::array<double, 3>;

std::int64_t cells_along(double extent, double side, bool periodic) {
  const double whole = std::floor(extent / side);
  return periodic ? std::max<std::int64_t>(static_cast<std::int64_t>(whole), 1)
                  : static_cast<std::int64_t>(whole) + 1;
}

double number_of_cells(const CellGrid& grid, const Extent& extent, double side) {
  double total = 1;
  for (int a = 0; a < 3; ++a) {
    const double whole = std::floor(extent[a] / side);
    total *= grid.length[a] > 0 ? std::max(whole, 1.0) : whole + 1;
  }
  return total;
}

// Fills cell_of (by point, for now) and cell_start (as counts, shifted by one). Returns how many cells are
// not empty.
template <class T>
std::int64_t count_cells(const PointSet<T>& points, const Extent& extent, double side, CellGrid& grid) {
  for (int a = 0; a < 3; ++a) {
    grid.cells[a] = cells_along(extent[a], side, grid.length[a] > 0);
    grid.side[a] = grid.length[a] > 0 ? extent[a] / static_cast<double>(grid.cells[a]) : side;
    grid.per_side[a] = 1 / grid.side[a];
  }
  grid.cell_start.assign(static_cast<std::size_t>(grid.cells[0] * grid.cells[1] * grid.cells[2]) + 1, 0);
  std::int64_t occupied = 0;
  for (std::int64_t i = 0; i < points.count; ++i) {
    const std::int64_t cell = grid.cell_at(points.point(i), points.dimension);
    grid.cell_of[i] = static_cast<std::int32_t>(cell);
    occupied += grid.cell_start[cell + 1]++ == 0;
  }
  return occupied;
}

template <class T>
void choose_side(const PointSet<T>& points, double occupancy, double smallest, const Extent& extent,
                 CellGrid& grid) {
  const double count = static_cast<double>(points.count), most_cells = 8 * count + 64;
  const double longest = *std::max_element(extent.begin(), extent.end());
  double volume = 1, axes = 0;
  for (const double length : extent) {
    if (length <= 0) continue;
    volume *= length / longest;
    ++axes;
  }
  double side = longest * std::pow(std::max(volume, 1e-30) * occupancy / count, 1 / axes), counted = 0;
  // Each round measures how full the cells are; the correction is exact for a surface and converges for the
  // rest.
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    side = std::max(side, smallest);
    while (number_of_cells(grid, extent, side) > most_cells) side *= 1.1;
    if (side == counted) break;
    counted = side;
    const double measured = count / static_cast<double>(count_cells(points, extent, side, grid));
    if (measured < 1.4 * occupancy && measured > occupancy / 1.4) break;
    side = std::min(side * std::sqrt(occupancy / measured), 2 * longest);
  }
}

}  // namespace

template <class T>
CellGrid sort_into_cells(const NeighbourSearch<T>& search, const FloatFrame<T>& frame, double occupancy,
                         double smallest_side) {
  const PointSet<T>& points = search.points;
  CellGrid grid;
  Extent extent{};
  for (std::int64_t a = 0; a < points.dimension && points.count > 0; ++a) {
    T low = points.point(0)[a], high = low;
    for (std::int64_t i = 1; i < points.count; ++i) {
      low = std::min(low, points.point(i)[a]);
      high = std::max(high, points.point(i)[a]);
    }
    const double largest = std::max(std::abs(static_cast<double>(low)), std::abs(static_cast<double>(high)));
    grid.length[a] = search.length(a);
    grid.low[a] = grid.length[a] > 0 ? 0 : static_cast<double>(low);
    extent[a] = grid.length[a] > 0 ? grid.length[a] : static_cast<double>(high) - static_cast<double>(low);
    const double wrapping = grid.length[a] > 0 ? kWrapError * (largest + grid.length[a]) : 0;
    grid.rounding = std::max(grid.rounding, 1e-12 * extent[a] + wrapping);
  }
  if (!(grid.rounding > 0) || !std::isfinite(grid.rounding)) return grid;
  grid.empty = false;
  grid.cell_of.resize(static_cast<std::size_t>(points.count));
  choose_side(points, occupancy, smallest_side, extent, grid);

  for (std::size_t c = 1; c < grid.cell_start.size(); ++c) grid.cell_start[c] += grid.cell_start[c - 1];
  for (auto& axis : grid.axis) axis.assign(static_cast<std::size_t>(points.count + CellGrid::kPadding), 0.0f);
  grid.index.assign(static_cast<std::size_t>(points.count + CellGrid::kPadding), 0);
  std::vector<std::int32_t> next(grid.cell_start.begin(), grid.cell_start.end() - 1);
  std::vector<std::int32_t> sorted_cells(grid.cell_of.size());
  for (std::int64_t i = 0; i < points.count; ++i) {
    const std::int32_t position = next[grid.cell_of[i]]++;
    sorted_cells[position] = grid.cell_of[i];
    grid.index[position] = static_cast<std::int32_t>(i);
    for (std::int64_t a = 0; a < points.dimension; ++a)
      grid.axis[a][position] = frame.at(a, points.point(i)[a]);
  }
  grid.cell_of = std::move(sorted_cells);
  return grid;
}

template <class T>
CellOrder order_by_cell(const CellGrid& grid, const PointSet<T>& queries) {
  CellOrder order;
  const auto count = static_cast<std::size_t>(queries.count);
  std::vector<std::int32_t> cell_of(count), next(grid.cell_start.size(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const PointSet<T>& of = queries;
    cell_of[i] =
        static_cast<std::int32_t>(grid.cell_at(of.point(static_cast<std::int64_t>(i)), of.dimension));
    ++next[cell_of[i] + 1];
  }
  for (std::size_t c = 1; c < next.size(); ++c) next[c] += next[c - 1];
  order.query.resize(count);
  order.cell.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t position = next[cell_of[i]]++;
    order.query[position] = static_cast<std::int32_t>(i);
    order.cell[position] = cell_of[i];
  }
  return order;
}

template CellGrid sort_into_cells(const NeighbourSearch<float>&, const FloatFrame<float>&, double, double);
template CellGrid sort_into_cells(const NeighbourSearch<double>&, const FloatFrame<double>&, double, double);
template CellOrder order_by_cell(const CellGrid&, const PointSet<float>&);
template CellOrder order_by_cell(const CellGrid&, const PointSet<double>&);

}  // namespace topomask
