#include "graph/cpu/knn.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/parallel.h"
#include "graph/cpu/limits.h"

namespace topomask {
namespace {

// A tree stops to prune when most boxes touch the ball around the query, at about ten dimensions.
constexpr std::int64_t kMaxTreeDimension = 8;

void check_points(const PointSet& points, std::int64_t k) {
  check_num_nodes("knn_graph", points.count);
  check(points.dimension >= 1, "knn_graph: expected points [N, D] with D of at least 1, got D = {}",
        points.dimension);
  check(k >= 1, "knn_graph: expected k of at least 1, got {}", k);
  check(k < points.count, "knn_graph: expected k to be less than the number of points {}, got {}",
        points.count, k);
  check_num_entries("knn_graph", static_cast<double>(points.count) * static_cast<double>(k));
  for (std::int64_t i = 0; i < points.count * points.dimension; ++i) {
    check(std::isfinite(points.coordinate[i]),
          "knn_graph: coordinate {} of point {} is {}, expected a finite number", i % points.dimension,
          i / points.dimension, points.coordinate[i]);
  }
}

}  // namespace

void nearest_neighbours(const PointSet& points, std::int64_t k, std::int32_t* out, KnnMethod method) {
  check_points(points, k);
  check(method != KnnMethod::cells || points.dimension <= 3,
        "knn_graph: cells need 1 to 3 dimensions, got {}", points.dimension);
  if (method == KnnMethod::automatic) {
    method = points.dimension <= 3                   ? KnnMethod::cells
             : points.dimension <= kMaxTreeDimension ? KnnMethod::tree
                                                     : KnnMethod::scan;
  }
  if (method == KnnMethod::scan) {
    nearest_by_scan(points, k, out);
  } else if (method == KnnMethod::tree) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(points.count));
    std::iota(all.begin(), all.end(), 0);
    nearest_by_tree(points, k, all, out);
  } else {
    const std::vector<std::int32_t> rest = nearest_by_cells(points, k, out);
    if (!rest.empty()) nearest_by_tree(points, k, rest, out);
  }
}

void write_nearest(std::vector<Neighbour>& candidates, std::int64_t k, std::int32_t* out) {
  constexpr std::size_t kFewCandidates = 48;
  const auto wanted = static_cast<std::size_t>(k);
  if (candidates.size() > kFewCandidates) {
    std::partial_sort(candidates.begin(), candidates.begin() + k, candidates.end());
  } else {
    // Insertion into the k best so far: the list is short, and this is the inner loop of a query.
    for (std::size_t i = 1; i < candidates.size(); ++i) {
      const Neighbour moving = candidates[i];
      std::size_t to = std::min(i, wanted);
      if (to < i && !(moving < candidates[to - 1])) continue;
      if (to < i) --to;
      for (; to > 0 && moving < candidates[to - 1]; --to) candidates[to] = candidates[to - 1];
      candidates[to] = moving;
    }
  }
  for (std::int64_t j = 0; j < k; ++j) out[j] = candidates[j].index;
}

}  // namespace topomask
