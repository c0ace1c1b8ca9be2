// Neighbours in up to three dimensions: the queries of a cell share one list of candidates, the points of the
// cells around it, and each picks its own from that list with SIMD.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <vector>

#include "core/parallel.h"
#include "graph/cpu/cell_grid.h"
#include "graph/cpu/knn.h"
#include "graph/cpu/knn_frame.h"
#include "graph/cpu/knn_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/cpu/knn_cells.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "graph/cpu/knn_scan-inl.h"

#ifndef TOPOMASK_KNN_CELL_INDEX
#define TOPOMASK_KNN_CELL_INDEX
namespace topomask {

// Cells up to this many steps away are searched before the tree is.
constexpr std::int64_t kMaxSteps = 4;

template <class T>
struct CellIndex {
  const NeighbourSearch<T>& search;
  const FloatFrame<T>& frame;
  const CellGrid& grid;
  std::int64_t most_candidates;  // of a query
};

}  // namespace topomask
#endif

HWY_BEFORE_NAMESPACE();
namespace topomask {
namespace HWY_NAMESPACE {

using FloatPoint = std::array<float, 3>;

template <class T>
FloatPoint in_frame(const FloatFrame<T>& frame, const T* point, std::int64_t dimension) {
  FloatPoint result{};
  for (std::int64_t a = 0; a < dimension; ++a) result[a] = frame.at(a, point[a]);
  return result;
}

// Squared distances of a whole vector of points from one query, or from its nearest image in a periodic box.
template <bool kPeriodic>
struct Measure {
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  V query[3], length[3];

  Measure(const FloatPoint& at, const FloatPoint& lengths) {
    for (int a = 0; a < 3; ++a) {
      query[a] = hn::Set(D(), at[a]);
      length[a] = hn::Set(D(), lengths[a]);
    }
  }

  V along(int a, const float* coordinate) const {
    const V difference = hn::Sub(hn::LoadU(D(), coordinate), query[a]);
    if constexpr (kPeriodic) {
      const V direct = hn::Abs(difference);
      return hn::Min(direct, hn::Abs(hn::Sub(length[a], direct)));
    }
    return difference;
  }
  V operator()(const float* x, const float* y, const float* z) const {
    const V dx = along(0, x), dy = along(1, y), dz = along(2, z);
    return hn::Add(hn::Add(hn::Mul(dx, dx), hn::Mul(dy, dy)), hn::Mul(dz, dz));
  }
};

// Axes that are not periodic get a length that is never shorter than the direct way.
template <class T>
FloatPoint lengths_of(const CellIndex<T>& index) {
  FloatPoint lengths{};
  for (int a = 0; a < 3; ++a) {
    const bool periodic = a < index.search.dimension() && index.search.length(a) > 0;
    lengths[a] = periodic ? index.frame.length(a) : std::numeric_limits<float>::max();
  }
  return lengths;
}

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

  // Takes all cells at most `steps` from `centre`. Returns false if those hold too many points.
  bool gather(const CellGrid& grid, const CellGrid::Cell& centre, const CellGrid::Cell& steps) {
    const hn::ScalableTag<float> d;
    const hn::ScalableTag<std::int32_t> di;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    count = 0;
    const bool all = grid.for_cells_around(centre, steps, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t length = end - begin;
      if (count + length > most) return false;
      // Whole vectors: what is written too much is overwritten by the next run or by the padding.
      for (std::int64_t i = 0; i < length; i += lanes) {
        for (int a = 0; a < 3; ++a) {
          hn::StoreU(hn::LoadU(d, grid.axis[a].data() + begin + i), d, axis[a].data() + count + i);
        }
        hn::StoreU(hn::LoadU(di, grid.index.data() + begin + i), di, index.data() + count + i);
      }
      count += length;
      return true;
    });
    hn::StoreU(hn::Set(d, std::numeric_limits<float>::quiet_NaN()), d, axis[0].data() + count);
    return all;
  }

  template <bool kPeriodic>
  void measure(const Measure<kPeriodic>& from) {
    const hn::ScalableTag<float> d;
    for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      hn::StoreU(from(axis[0].data() + i, axis[1].data() + i, axis[2].data() + i), d, distance.data() + i);
    }
  }
};

// The distance of a query to a candidate; floats that say all there is to know need not be looked up again.
template <class T, bool kPeriodic>
double exact_distance(const NeighbourSearch<T>& search, const T* query, const FloatPoint& at,
                      const Surroundings& around, std::int32_t position) {
  if constexpr (std::is_same_v<T, float> && !kPeriodic) {
    const double x = static_cast<double>(at[0]) - around.axis[0][position];
    const double y = static_cast<double>(at[1]) - around.axis[1][position];
    const double z = static_cast<double>(at[2]) - around.axis[2][position];
    return x * x + y * y + z * z;
  } else {
    return search.squared_distance(query, search.points.point(around.index[position]));
  }
}

// Queries order.query[begin .. end). Those that need the tree are appended to `rest`.
template <class T, bool kPeriodic>
void cell_queries(const CellIndex<T>& index, const CellOrder& order, std::int64_t begin, std::int64_t end,
                  const NeighbourLists<T>& out, std::vector<std::int32_t>& rest) {
  const CellGrid& grid = index.grid;
  const NeighbourSearch<T>& search = index.search;
  const std::int64_t dimension = search.dimension();
  const std::int64_t need = out.k + (search.skip_own ? 1 : 0);  // the point finds itself
  const FloatPoint lengths = lengths_of(index);
  Surroundings around(index.most_candidates);
  std::vector<Neighbour> found;
  std::vector<std::int32_t> open, still_open;
  float guess = static_cast<float>(std::pow(grid.side[0] * index.frame.scale(), 2) / 4);
  for (std::int64_t first = begin; first < end;) {
    const std::int64_t cell = order.cell[first];
    const CellGrid::Cell centre = grid.coordinates_of(cell);
    open.clear();
    for (; first < end && order.cell[first] == cell; ++first) open.push_back(order.query[first]);
    for (std::int64_t step = 1; !open.empty(); ++step) {
      const CellGrid::Cell steps = {step, step, step};
      if (step > kMaxSteps || !around.gather(grid, centre, steps)) {
        rest.insert(rest.end(), open.begin(), open.end());
        break;
      }
      still_open.clear();
      for (const std::int32_t query : open) {
        const T* q = search.queries.point(query);
        const double known = grid.known_distance(q, dimension, centre, steps);
        const bool all_known = known * known > search.limit;
        if (around.count < need && !all_known && known < std::numeric_limits<double>::infinity()) {
          still_open.push_back(query);
          continue;
        }
        const FloatPoint at = in_frame(index.frame, q, dimension);
        around.measure(Measure<kPeriodic>(at, lengths));
        float reach = kInfinity;
        if (around.count > need) reach = radius_for(around.distance.data(), around.count, need, guess);
        if (reach < kInfinity) guess = reach;
        const std::int64_t within =
            collect_within(around.distance.data(), around.count,
                           enlarged(reach, dimension, index.frame.error_of(q)), around.position.data());
        found.clear();
        for (std::int64_t c = 0; c < within; ++c) {
          const std::int32_t position = around.position[c];
          if (search.skip_own && around.index[position] == query) continue;
          const double squared = exact_distance<T, kPeriodic>(search, q, at, around, position);
          if (squared <= search.limit) found.push_back({squared, around.index[position]});
        }
        out.write(query, found);
        // Strictly inside: a point outside at the same distance could have a smaller index.
        const bool enough = static_cast<std::int64_t>(found.size()) >= out.k &&
                            found[out.k - 1].squared_distance < known * known;
        if (!enough && !all_known && known < std::numeric_limits<double>::infinity())
          still_open.push_back(query);
      }
      open.swap(still_open);
    }
  }
}

// Rows of queries [begin, end): runs of cells are measured where they lie.
template <class T, bool kPeriodic>
void cell_within(const CellIndex<T>& index, const CellGrid::Cell& steps, std::int64_t begin, std::int64_t end,
                 std::int32_t first_point, RowBlock<T>& out) {
  const CellGrid& grid = index.grid;
  const NeighbourSearch<T>& search = index.search;
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FloatPoint lengths = lengths_of(index);
  const auto limit = static_cast<float>(search.limit * index.frame.scale() * index.frame.scale());
  std::vector<Neighbour> found;
  for (std::int64_t query = begin; query < end; ++query) {
    const T* q = search.queries.point(query);
    const Measure<kPeriodic> measure(in_frame(index.frame, q, search.dimension()), lengths);
    const auto reach = hn::Set(d, enlarged(limit, search.dimension(), index.frame.error_of(q)));
    const CellGrid::Cell centre = grid.coordinates_of(grid.cell_at(q, search.dimension()));
    found.clear();
    grid.for_cells_around(centre, steps, [&](std::int64_t run, std::int64_t run_end) {
      for (; run < run_end; run += lanes) {
        const auto within = hn::Le(
            measure(grid.axis[0].data() + run, grid.axis[1].data() + run, grid.axis[2].data() + run), reach);
        if (hn::AllFalse(d, within)) continue;
        alignas(8) std::uint8_t bits[HWY_MAX_BYTES / 4 / 8 + 8] = {};
        const std::size_t bytes = hn::StoreMaskBits(d, within, bits);
        for (std::size_t byte = 0; byte < bytes; ++byte) {
          for (unsigned left = bits[byte]; left != 0; left &= left - 1) {
            const std::int64_t position = run + static_cast<std::int64_t>(8 * byte) + __builtin_ctz(left);
            if (position >= run_end) break;
            const std::int32_t point = grid.index[position];
            if (search.skip_own && point == query) continue;
            const double squared = search.squared_distance(q, search.points.point(point));
            if (squared <= search.limit) found.push_back({squared, point});
          }
        }
      }
      return true;
    });
    out.add(found, first_point);
  }
}

template <class T>
void cell_queries_of(const CellIndex<T>& index, const CellOrder& order, std::int64_t begin, std::int64_t end,
                     const NeighbourLists<T>& out, std::vector<std::int32_t>& rest) {
  if (index.search.box == nullptr) {
    cell_queries<T, false>(index, order, begin, end, out, rest);
  } else {
    cell_queries<T, true>(index, order, begin, end, out, rest);
  }
}
template <class T>
void cell_within_of(const CellIndex<T>& index, const CellGrid::Cell& steps, std::int64_t begin,
                    std::int64_t end, std::int32_t first_point, RowBlock<T>& out) {
  if (index.search.box == nullptr) {
    cell_within<T, false>(index, steps, begin, end, first_point, out);
  } else {
    cell_within<T, true>(index, steps, begin, end, first_point, out);
  }
}

void cell_queries_float(const CellIndex<float>& index, const CellOrder& order, std::int64_t begin,
                        std::int64_t end, const NeighbourLists<float>& out, std::vector<std::int32_t>& rest) {
  cell_queries_of(index, order, begin, end, out, rest);
}
void cell_queries_double(const CellIndex<double>& index, const CellOrder& order, std::int64_t begin,
                         std::int64_t end, const NeighbourLists<double>& out,
                         std::vector<std::int32_t>& rest) {
  cell_queries_of(index, order, begin, end, out, rest);
}
void cell_within_float(const CellIndex<float>& index, const CellGrid::Cell& steps, std::int64_t begin,
                       std::int64_t end, std::int32_t first_point, RowBlock<float>& out) {
  cell_within_of(index, steps, begin, end, first_point, out);
}
void cell_within_double(const CellIndex<double>& index, const CellGrid::Cell& steps, std::int64_t begin,
                        std::int64_t end, std::int32_t first_point, RowBlock<double>& out) {
  cell_within_of(index, steps, begin, end, first_point, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace topomask
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topomask {

HWY_EXPORT(cell_queries_float);
HWY_EXPORT(cell_queries_double);
HWY_EXPORT(cell_within_float);
HWY_EXPORT(cell_within_double);

namespace {

template <class T>
class CellFinder : public WithinFinder<T> {
 public:
  CellFinder(const NeighbourSearch<T>& search, double radius)
      : frame_(search), grid_(sort_into_cells(search, frame_, kOccupancy, radius / 2)), search_(search) {
    for (int a = 0; a < 3 && !grid_.empty; ++a) {
      // Enough for a query at the wall of its cell.
      const double steps = std::ceil((radius + 2 * grid_.rounding) * (1 + 1e-12) / grid_.side[a]);
      steps_[a] =
          steps < static_cast<double>(grid_.cells[a]) ? static_cast<std::int64_t>(steps) : grid_.cells[a];
    }
  }

  // Whether cells are as small as the radius asks for, or at least nowhere crowded.
  bool suits(double radius) const {
    constexpr std::int32_t kCrowd = 64;
    if (grid_.empty) return false;
    if (grid_.side[0] <= radius) return true;
    for (std::size_t c = 1; c < grid_.cell_start.size(); ++c) {
      if (grid_.cell_start[c] - grid_.cell_start[c - 1] > kCrowd) return false;
    }
    return true;
  }

  void run(std::int64_t begin, std::int64_t end, std::int32_t first_point, RowBlock<T>& out) const override {
    const CellIndex<T> index{search_, frame_, grid_, 0};
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(cell_within_float)(index, steps_, begin, end, first_point, out);
    } else {
      HWY_DYNAMIC_DISPATCH(cell_within_double)(index, steps_, begin, end, first_point, out);
    }
  }

 private:
  static constexpr double kOccupancy = 4;

  FloatFrame<T> frame_;
  CellGrid grid_;
  const NeighbourSearch<T>& search_;
  CellGrid::Cell steps_ = {1, 1, 1};
};

}  // namespace

template <class T>
std::vector<std::int32_t> nearest_by_cells(const NeighbourSearch<T>& search, const NeighbourLists<T>& out) {
  const std::int64_t queries = search.queries.count;
  std::vector<std::int32_t> rest;
  const FloatFrame<T> frame(search);
  CellGrid grid = sort_into_cells(search, frame, std::max(3.0, 0.45 * static_cast<double>(out.k + 1)));
  if (grid.empty) {
    rest.resize(static_cast<std::size_t>(queries));
    std::iota(rest.begin(), rest.end(), 0);
    return rest;
  }
  CellOrder order;
  if (search.queries.coordinate == search.points.coordinate && queries == search.points.count) {
    order.query.assign(grid.index.begin(), grid.index.begin() + queries);
    order.cell = std::move(grid.cell_of);
  } else {
    order = order_by_cell(grid, search.queries);
  }
  // Cells that hold far more than their share mean uneven data; a tree is better there than a long list.
  const CellIndex<T> index{search, frame, grid, std::min(search.points.count, 512 + 64 * out.k)};
  std::mutex rest_lock;
  for_runs(queries, 4096, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> chunk_rest;
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(cell_queries_float)(index, order, begin, end, out, chunk_rest);
    } else {
      HWY_DYNAMIC_DISPATCH(cell_queries_double)(index, order, begin, end, out, chunk_rest);
    }
    const std::lock_guard<std::mutex> guard(rest_lock);
    rest.insert(rest.end(), chunk_rest.begin(), chunk_rest.end());
  });
  return rest;
}

template <class T>
std::unique_ptr<WithinFinder<T>> within_by_cells(const NeighbourSearch<T>& search) {
  const double radius = std::sqrt(search.limit);
  auto finder = std::make_unique<CellFinder<T>>(search, radius);
  if (!finder->suits(radius)) return nullptr;
  return finder;
}

template std::vector<std::int32_t> nearest_by_cells(const NeighbourSearch<float>&,
                                                    const NeighbourLists<float>&);
template std::vector<std::int32_t> nearest_by_cells(const NeighbourSearch<double>&,
                                                    const NeighbourLists<double>&);
template std::unique_ptr<WithinFinder<float>> within_by_cells(const NeighbourSearch<float>&);
template std::unique_ptr<WithinFinder<double>> within_by_cells(const NeighbourSearch<double>&);

}  // namespace topomask
#endif
