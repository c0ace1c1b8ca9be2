// Exact neighbours of points by Euclidean distance: the k nearest, or all within a radius.
//
// Distances are sums of squares in double, ties go to the smaller index. Three ways lead to the same answer:
// a grid of cells for up to 3 dimensions, a k-d tree for a few more (and for the queries the cells do not
// suit: clusters and outliers), and a scan over all points beyond that and where there are few.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace topomask {

template <class T>  // float or double
struct PointSet {
  const T* coordinate = nullptr;  // [count, dimension], finite
  std::int64_t count = 0;
  std::int64_t dimension = 0;

  const T* point(std::int64_t i) const { return coordinate + i * dimension; }
  PointSet part(std::int64_t begin, std::int64_t end) const { return {point(begin), end - begin, dimension}; }
};

struct Neighbour {
  double squared_distance;
  std::int32_t index;

  bool operator<(const Neighbour& other) const {
    return squared_distance != other.squared_distance ? squared_distance < other.squared_distance
                                                      : index < other.index;
  }
};

// The nearest image of a difference in a periodic box, its sign apart. Same as |remainder(difference,
// length)|, but for most differences without a division.
inline double nearest_image(double difference, double length) {
  const double magnitude = std::abs(difference);
  if (length == 0 || magnitude <= 0.5 * length) return magnitude;
  if (magnitude <= 1.5 * length) return std::abs(magnitude - length);  // exact
  return std::abs(std::remainder(magnitude, length));
}

// A coordinate brought into [0, length], off by at most 2^-53 of the length; as it is where nothing is
// periodic.
inline double wrapped(double x, double length) {
  if (length == 0 || (x >= 0 && x <= length)) return x;
  const double rest = std::fmod(x, length);
  return rest < 0 ? rest + length : rest;
}

// Distances between wrapped coordinates and between the coordinates themselves differ by less than this share
// of the length and the magnitudes of both coordinates.
constexpr double kWrapError = 0x1p-49;

// Queries and the points among which their neighbours are searched.
template <class T>
struct NeighbourSearch {
  PointSet<T> points;
  PointSet<T> queries;
  bool skip_own = false;        // query i does not find point i
  const double* box = nullptr;  // [dimension] lengths of a periodic box, 0: not periodic; null: nothing is
  double limit = std::numeric_limits<double>::infinity();  // of the squared distance; equal ones are within

  std::int64_t dimension() const { return points.dimension; }
  double length(std::int64_t axis) const { return box == nullptr ? 0 : box[axis]; }
  double squared_distance(const T* query, const T* point) const {
    double sum = 0;
    if (box == nullptr) {
      for (std::int64_t a = 0; a < dimension(); ++a) {
        const double difference = static_cast<double>(query[a]) - static_cast<double>(point[a]);
        sum += difference * difference;
      }
    } else {
      for (std::int64_t a = 0; a < dimension(); ++a) {
        const double difference =
            nearest_image(static_cast<double>(query[a]) - static_cast<double>(point[a]), box[a]);
        sum += difference * difference;
      }
    }
    return sum;
  }
};

// Rows of k neighbours, nearest first; what is left of a row is -1 and infinity.
template <class T>
struct NeighbourLists {
  std::int64_t k = 0;
  std::int32_t* index = nullptr;  // [queries, k]
  T* distance2 = nullptr;         // [queries, k] or null
  std::int32_t* count = nullptr;  // [queries] or null
  std::int32_t first_point = 0;   // added to every index

  // `found` holds the neighbours of the query, or more, in any order; they are put into order.
  void write(std::int64_t query, std::vector<Neighbour>& found) const;
  NeighbourLists from(std::int64_t query, std::int64_t point) const {
    return {k, index + query * k, distance2 == nullptr ? nullptr : distance2 + query * k,
            count == nullptr ? nullptr : count + query, first_point + static_cast<std::int32_t>(point)};
  }
};

enum class KnnMethod { automatic, cells, tree, scan };

// `cells` needs a dimension of 1 to 3.
template <class T>
void nearest_neighbours(const NeighbourSearch<T>& search, const NeighbourLists<T>& out,
                        KnnMethod method = KnnMethod::automatic);

// A packed batch: graph g has the points ptr[g] .. ptr[g+1]-1, and so for the queries.
struct PackedGraphs {
  std::span<const std::int64_t> ptr, query_ptr;  // [graphs+1]
  std::int64_t count() const { return static_cast<std::int64_t>(ptr.size()) - 1; }
};
template <class T>
void nearest_neighbours(const NeighbourSearch<T>& search, const PackedGraphs& graphs,
                        const NeighbourLists<T>& out);

// All points within search.limit, by ascending index: row_ptr [queries+1]; the rest goes where `allocate`
// says once their number is known.
template <class T>
struct RadiusRows {
  std::int32_t* col = nullptr;  // [entries]
  T* distance2 = nullptr;       // [entries]
};
template <class T>
void neighbours_within(const NeighbourSearch<T>& search, const PackedGraphs& graphs, std::int64_t* row_ptr,
                       const std::function<RadiusRows<T>(std::int64_t entries)>& allocate);

// Each of these fills the rows of `out` that belong to `queries`, or all rows.
template <class T>
void nearest_by_tree(const NeighbourSearch<T>& search, const NeighbourLists<T>& out,
                     std::span<const std::int32_t> queries);
template <class T>
void nearest_by_scan(const NeighbourSearch<T>& search, const NeighbourLists<T>& out);
// Returns the queries it leaves to the tree: their surroundings are too empty or too crowded for cells of one
// size.
template <class T>
std::vector<std::int32_t> nearest_by_cells(const NeighbourSearch<T>& search, const NeighbourLists<T>& out);

// The first k of `found` become its k smallest, in order; fewer where there are fewer.
void select_nearest(std::vector<Neighbour>& found, std::int64_t k);

}  // namespace topomask
