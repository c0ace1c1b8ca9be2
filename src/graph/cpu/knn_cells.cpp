// Nearest neighbours in up to three dimensions: the points of a cell share one list of candidates, the points
// of the cells around it, and each picks its own from that list with SIMD.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "core/parallel.h"
#include "graph/cpu/cell_grid.h"
#include "graph/cpu/knn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/cpu/knn_cells.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "graph/cpu/knn_scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topomask {
namespace HWY_NAMESPACE {

// Points of the cells around one cell, copied side by side.
struct Surroundings {
  std::int64_t most = 0, count = 0;
  std::array<std::vector<float>, 3> axis;
  std::vector<std::int32_t> index;
  std::vector<float> distance;         // squared, after `measure`
  std::vector<std::int32_t> position;  // scratch

  explicit Surroundings(std::int64_t most_points)
      : most(most_points), index(static_cast<std::size_t>(most_points + CellGrid::kPadding)) {
    for (auto& values : axis) values.resize(index.size());
    distance.resize(index.size());
    position.resize(index.size());
  }

  // Takes all cells at most `radius` steps from `centre`. Returns false if those hold too many points.
  bool gather(const CellGrid& grid, const std::array<std::int64_t, 3>& centre, std::int64_t radius) {
    const hn::ScalableTag<float> d;
    const hn::ScalableTag<std::int32_t> di;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::array<std::int64_t, 3> first, last;
    for (int a = 0; a < 3; ++a) {
      first[a] = std::max<std::int64_t>(centre[a] - radius, 0);
      last[a] = std::min(centre[a] + radius, grid.cells[a] - 1);
    }
    count = 0;
    for (std::int64_t z = first[2]; z <= last[2]; ++z) {
      for (std::int64_t y = first[1]; y <= last[1]; ++y) {
        // Cells along the first axis are neighbours in memory: one run of points.
        const std::int64_t line = (z * grid.cells[1] + y) * grid.cells[0];
        const std::int64_t begin = grid.cell_start[line + first[0]];
        const std::int64_t length = grid.cell_start[line + last[0] + 1] - begin;
        if (count + length > most) return false;
        // Whole vectors: what is written too much is overwritten by the next run or by the padding.
        for (std::int64_t i = 0; i < length; i += lanes) {
          for (int a = 0; a < 3; ++a) {
            hn::StoreU(hn::LoadU(d, grid.axis[a].data() + begin + i), d, axis[a].data() + count + i);
          }
          hn::StoreU(hn::LoadU(di, grid.index.data() + begin + i), di, index.data() + count + i);
        }
        count += length;
      }
    }
    hn::StoreU(hn::Set(d, std::numeric_limits<float>::quiet_NaN()), d, axis[0].data() + count);
    return true;
  }

  void measure(const std::array<float, 3>& query) {
    const hn::ScalableTag<float> d;
    const auto qx = hn::Set(d, query[0]), qy = hn::Set(d, query[1]), qz = hn::Set(d, query[2]);
    for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto x = hn::Sub(hn::LoadU(d, axis[0].data() + i), qx);
      const auto y = hn::Sub(hn::LoadU(d, axis[1].data() + i), qy);
      const auto z = hn::Sub(hn::LoadU(d, axis[2].data() + i), qz);
      hn::StoreU(hn::Add(hn::Add(hn::Mul(x, x), hn::Mul(y, y)), hn::Mul(z, z)), d, distance.data() + i);
    }
  }
};

// Distance within which the cells around `query` are known to hold every point.
double known_distance(const CellGrid& grid, const std::array<float, 3>& query,
                      const std::array<std::int64_t, 3>& centre, std::int64_t radius) {
  double gap = std::numeric_limits<double>::infinity();
  for (int a = 0; a < 3; ++a) {
    const double here = query[a] - grid.low[a];
    if (centre[a] - radius > 0)
      gap = std::min(gap, here - static_cast<double>(centre[a] - radius) * grid.side);
    if (centre[a] + radius + 1 < grid.cells[a]) {
      gap = std::min(gap, static_cast<double>(centre[a] + radius + 1) * grid.side - here);
    }
  }
  return std::max(gap - grid.rounding, 0.0);
}

// The queries at positions [begin, end). Those that need the tree are appended to `rest`.
void cell_queries(const CellGrid& grid, std::int64_t k, std::int64_t most_candidates, std::int64_t begin,
                  std::int64_t end, std::int32_t* out, std::vector<std::int32_t>& rest) {
  constexpr std::int64_t kMaxRadius = 4;
  Surroundings around(most_candidates);
  std::vector<Neighbour> candidates;
  std::vector<std::int64_t> open, still_open;
  float guess = static_cast<float>(grid.side * grid.side / 4);
  for (std::int64_t first = begin; first < end;) {
    const std::int64_t cell = grid.cell_of[first];
    const std::int64_t last = std::min<std::int64_t>(grid.cell_start[cell + 1], end);
    const std::array<std::int64_t, 3> centre = {cell % grid.cells[0], cell / grid.cells[0] % grid.cells[1],
                                                cell / (grid.cells[0] * grid.cells[1])};
    open.clear();
    for (std::int64_t p = first; p < last; ++p) open.push_back(p);
    for (std::int64_t radius = 1; !open.empty(); ++radius) {
      if (radius > kMaxRadius || !around.gather(grid, centre, radius)) {
        for (const std::int64_t p : open) rest.push_back(grid.index[p]);
        break;
      }
      if (around.count <= k) continue;
      still_open.clear();
      for (const std::int64_t p : open) {
        const std::array<float, 3> q = {grid.axis[0][p], grid.axis[1][p], grid.axis[2][p]};
        around.measure(q);
        // One more than k, because the point finds itself.
        const float reach = radius_for(around.distance.data(), around.count, k + 1, guess);
        if (reach < kInfinity) guess = reach;
        const std::int64_t found =
            collect_within(around.distance.data(), around.count, reach, 3, around.position.data());
        candidates.clear();
        for (std::int64_t c = 0; c < found; ++c) {
          const std::int32_t at = around.position[c];
          if (around.index[at] == grid.index[p]) continue;
          const double x = static_cast<double>(q[0]) - around.axis[0][at];
          const double y = static_cast<double>(q[1]) - around.axis[1][at];
          const double z = static_cast<double>(q[2]) - around.axis[2][at];
          candidates.push_back({x * x + y * y + z * z, around.index[at]});
        }
        std::int32_t* row = out + grid.index[p] * k;
        write_nearest(candidates, k, row);
        // Strictly inside: a point outside at the same distance could have a smaller index.
        const double known = known_distance(grid, q, centre, radius);
        if (!(candidates[k - 1].squared_distance < known * known)) still_open.push_back(p);
      }
      open.swap(still_open);
    }
    first = last;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topomask
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topomask {

HWY_EXPORT(cell_queries);

std::vector<std::int32_t> nearest_by_cells(const PointSet& points, std::int64_t k, std::int32_t* out) {
  std::vector<std::int32_t> rest;
  const CellGrid grid = sort_into_cells(points, std::max(3.0, 0.45 * static_cast<double>(k + 1)));
  if (grid.side == 0) {
    rest.resize(static_cast<std::size_t>(points.count));
    for (std::int64_t i = 0; i < points.count; ++i) rest[i] = static_cast<std::int32_t>(i);
    return rest;
  }
  // Cells that hold far more than their share mean uneven data; a tree is better there than a long list.
  const std::int64_t most_candidates = std::min(points.count, 512 + 64 * k);
  std::mutex rest_lock;
  parallel_for(points.count, 512, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> chunk_rest;
    HWY_DYNAMIC_DISPATCH(cell_queries)(grid, k, most_candidates, begin, end, out, chunk_rest);
    const std::lock_guard<std::mutex> guard(rest_lock);
    rest.insert(rest.end(), chunk_rest.begin(), chunk_rest.end());
  });
  return rest;
}

}  // namespace topomask
#endif
