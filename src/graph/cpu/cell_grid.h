// Points of up to three dimensions sorted into cells, all of one size.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "graph/cpu/knn.h"
#include "graph/cpu/knn_frame.h"

namespace topomask {

struct CellGrid {
  // Arrays are padded so that a reader may load whole vectors from any point.
  static constexpr std::int64_t kPadding = 64;
  using Cell = std::array<std::int64_t, 3>;

  bool empty = true;                     // all points are equal, or their spread overflows: there is no grid
  std::array<double, 3> side{};          // of a cell: the same along all axes, but divides a periodic length
  std::array<double, 3> per_side{};      // 1 / side
  std::array<double, 3> low{};           // corner of the grid
  std::array<double, 3> length{};        // of a periodic box, or 0
  double rounding = 0;                   // bounds the error of a distance between a point and a cell's wall
  Cell cells = {1, 1, 1};                // along each axis; the first varies fastest
  std::vector<std::int32_t> cell_start;  // [cells + 1] positions
  std::vector<std::int32_t> cell_of;     // [N] position -> cell
  std::array<std::vector<float>, 3> axis;  // [N + kPadding] position -> coordinate in the frame
  std::vector<std::int32_t> index;         // [N + kPadding] position -> point; ascending within a cell

  // The cell a coordinate is in, or the nearest one where it is outside.
  std::int64_t along(int a, double x) const {
    const double steps = (wrapped(x, length[a]) - low[a]) * per_side[a];
    return steps >= static_cast<double>(cells[a]) ? cells[a] - 1
           : steps > 0                            ? static_cast<std::int64_t>(steps)
                                                  : 0;
  }
  template <class T>
  std::int64_t cell_at(const T* point, std::int64_t dimension) const {
    std::int64_t cell = 0;
    for (auto a = static_cast<int>(dimension) - 1; a >= 0; --a)
      cell = cell * cells[a] + along(a, static_cast<double>(point[a]));
    return cell;
  }
  Cell coordinates_of(std::int64_t cell) const {
    return {cell % cells[0], cell / cells[0] % cells[1], cell / (cells[0] * cells[1])};
  }

  // Calls run(begin, end) with the positions of all points in cells at most `steps` from `centre` along each
  // axis, each cell once; stops where run returns false, and returns that.
  template <class Run>
  bool for_cells_around(const Cell& centre, const Cell& steps, Run&& run) const {
    std::array<Span, 3> spans;
    for (int a = 0; a < 3; ++a) spans[a] = span_around(a, centre[a], steps[a]);
    for (std::int64_t z = 0; z < spans[2].count; ++z) {
      for (std::int64_t y = 0; y < spans[1].count; ++y) {
        // Cells along the first axis are neighbours in memory: one run of points, or two around the edge.
        const std::int64_t line =
            ((spans[2].first + z) % cells[2] * cells[1] + (spans[1].first + y) % cells[1]) * cells[0];
        const std::int64_t first = spans[0].first, end = first + spans[0].count;
        if (!run(cell_start[line + first], cell_start[line + std::min(end, cells[0])])) return false;
        if (end > cells[0] && !run(cell_start[line], cell_start[line + end - cells[0]])) return false;
      }
    }
    return true;
  }

  // The distance from `query` within which the cells at most `steps` from `centre` hold every point.
  template <class T>
  double known_distance(const T* query, std::int64_t dimension, const Cell& centre, const Cell& steps) const {
    double gap = std::numeric_limits<double>::infinity();
    for (int a = 0; a < dimension; ++a) {
      const double here = wrapped(static_cast<double>(query[a]), length[a]) - low[a];
      const bool around = length[a] > 0;
      if (around && 2 * steps[a] + 1 >= cells[a]) continue;
      if (around || centre[a] - steps[a] > 0)
        gap = std::min(gap, here - static_cast<double>(centre[a] - steps[a]) * side[a]);
      if (around || centre[a] + steps[a] + 1 < cells[a])
        gap = std::min(gap, static_cast<double>(centre[a] + steps[a] + 1) * side[a] - here);
    }
    return std::max(gap * (1 - 1e-12) - rounding, 0.0);
  }

 private:
  struct Span {
    std::int64_t first, count;  // cells first .. first + count - 1, modulo all
  };
  Span span_around(int a, std::int64_t centre, std::int64_t steps) const {
    if (length[a] > 0) {
      if (2 * steps + 1 >= cells[a]) return {0, cells[a]};
      return {(centre - steps + cells[a]) % cells[a], 2 * steps + 1};
    }
    const std::int64_t first = std::max<std::int64_t>(centre - steps, 0);
    return {first, std::min(centre + steps, cells[a] - 1) - first + 1};
  }
};

// Chooses the side so that a cell that is not empty holds about `occupancy` points, whether they fill the
// space or lie on a surface, with at most 8 N + 64 cells in all and none smaller than `smallest_side`.
template <class T>
CellGrid sort_into_cells(const NeighbourSearch<T>& search, const FloatFrame<T>& frame, double occupancy,
                         double smallest_side = 0);

// Queries in the order of their cells.
struct CellOrder {
  std::vector<std::int32_t> query;  // [Q]
  std::vector<std::int32_t> cell;   // [Q] of query[i]
};
template <class T>
CellOrder order_by_cell(const CellGrid& grid, const PointSet<T>& queries);

}  // namespace topomask
