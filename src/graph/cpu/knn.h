// Exact k nearest neighbours by Euclidean distance.
//
// Distances are compared in double, ties go to the smaller index, and a point is not its own neighbour. Three
// ways lead to the same answer: a grid of cells for up to 3 dimensions, a k-d tree for a few more (and for
// the points the cells do not suit: clusters and outliers), and a scan over all points beyond that.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace topomask {

struct PointSet {
  const float* coordinate = nullptr;  // [count, dimension], finite
  std::int64_t count = 0;
  std::int64_t dimension = 0;

  const float* point(std::int64_t i) const { return coordinate + i * dimension; }
};

struct Neighbour {
  double squared_distance;
  std::int32_t index;

  bool operator<(const Neighbour& other) const {
    return squared_distance != other.squared_distance ? squared_distance < other.squared_distance
                                                      : index < other.index;
  }
};

enum class KnnMethod { automatic, cells, tree, scan };

// Writes [count, k] indices, nearest first. Needs 1 <= k < count. `cells` needs a dimension of 1 to 3.
void nearest_neighbours(const PointSet& points, std::int64_t k, std::int32_t* out,
                        KnnMethod method = KnnMethod::automatic);

// Each of these fills the rows of `out` that belong to `queries`, or all rows.
void nearest_by_tree(const PointSet& points, std::int64_t k, std::span<const std::int32_t> queries,
                     std::int32_t* out);
void nearest_by_scan(const PointSet& points, std::int64_t k, std::int32_t* out);
// Returns the points it leaves to the tree: their surroundings are too empty or too crowded for cells of one
// size.
std::vector<std::int32_t> nearest_by_cells(const PointSet& points, std::int64_t k, std::int32_t* out);

// The k smallest of `candidates` go to `out` in order.
void write_nearest(std::vector<Neighbour>& candidates, std::int64_t k, std::int32_t* out);

}  // namespace topomask
