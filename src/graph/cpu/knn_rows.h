// Rows of all neighbours within a radius, as the searches find them: one block per run of queries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/cpu/knn.h"

namespace topomask {

template <class T>
struct RowBlock {
  std::vector<std::int64_t> length;  // a query
  std::vector<std::int32_t> col;     // ascending within a query
  std::vector<T> distance2;

  // `found` holds all neighbours of the next query, in any order.
  void add(std::vector<Neighbour>& found, std::int32_t first_point) {
    std::sort(found.begin(), found.end(),
              [](const Neighbour& a, const Neighbour& b) { return a.index < b.index; });
    for (const Neighbour& each : found) {
      col.push_back(first_point + each.index);
      distance2.push_back(static_cast<T>(each.squared_distance));
    }
    length.push_back(static_cast<std::int64_t>(found.size()));
  }
};

// An index over the points of a search, which must outlive it.
template <class T>
class WithinFinder {
 public:
  virtual ~WithinFinder() = default;
  // Appends the rows of queries [begin, end); several threads may call it at once. `first_point` is added to
  // every index.
  virtual void run(std::int64_t begin, std::int64_t end, std::int32_t first_point,
                   RowBlock<T>& out) const = 0;
};

template <class T>
std::unique_ptr<WithinFinder<T>> within_by_scan(const NeighbourSearch<T>& search);
template <class T>
std::unique_ptr<WithinFinder<T>> within_by_tree(const NeighbourSearch<T>& search);
// Null where cells of one size do not suit the points. For up to 3 dimensions.
template <class T>
std::unique_ptr<WithinFinder<T>> within_by_cells(const NeighbourSearch<T>& search);

}  // namespace topomask
