// Points of up to three dimensions sorted into cubic cells.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graph/cpu/knn.h"

namespace topomask {

struct CellGrid {
  // Arrays are padded so that a reader may load whole vectors from any point.
  static constexpr std::int64_t kPadding = 64;

  double side = 0;      // of a cell; 0: all points are equal and there is no grid
  double rounding = 0;  // bounds the error of a distance between a point and a cell's wall
  std::array<double, 3> low{};
  std::array<std::int64_t, 3> cells = {1, 1, 1};  // along each axis; the first varies fastest
  std::vector<std::int32_t> cell_start;           // [cells + 1] positions
  std::vector<std::int32_t> cell_of;              // [N] position -> cell
  std::array<std::vector<float>, 3> axis;         // [N + kPadding] position -> coordinate
  std::vector<std::int32_t> index;                // [N + kPadding] position -> point; ascending within a cell
};

// Chooses the side so that a cell that is not empty holds about `occupancy` points, whether they fill the
// space or lie on a surface, with at most 8 N + 64 cells in all.
CellGrid sort_into_cells(const PointSet& points, double occupancy);

}  // namespace topomask
