// Neighbours in many dimensions, or among few points: all distances, one vector of candidates at a time.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "graph/cpu/knn.h"
#include "graph/cpu/knn_frame.h"
#include "graph/cpu/knn_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/cpu/knn_scan.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "graph/cpu/knn_scan-inl.h"

#ifndef TOPOMASK_KNN_SCAN_AXES
#define TOPOMASK_KNN_SCAN_AXES
namespace topomask {

// Where the coordinates lie: one axis after the other, as floats, NaN from the last point on.
template <class T>
struct ScanAxes {
  // The widest vector of any target, not HWY_MAX_BYTES, which is that of the baseline here.
  static constexpr std::int64_t kPadding = 64;

  const NeighbourSearch<T>& search;
  FloatFrame<T> frame;
  std::int64_t stride;
  std::vector<float> axes;  // [dimension, stride]

  explicit ScanAxes(const NeighbourSearch<T>& s)
      : search(s),
        frame(s),
        stride(s.points.count + kPadding),
        axes(static_cast<std::size_t>(stride * s.dimension()), std::numeric_limits<float>::quiet_NaN()) {
    for (std::int64_t i = 0; i < s.points.count; ++i) {
      for (std::int64_t a = 0; a < s.dimension(); ++a)
        axes[a * stride + i] = frame.at(a, s.points.point(i)[a]);
    }
  }
};

}  // namespace topomask
#endif

HWY_BEFORE_NAMESPACE();
namespace topomask {
namespace HWY_NAMESPACE {

// Candidates per block: the block of distances stays in the first-level cache while the dimensions go by.
constexpr std::int64_t kBlock = 2048;

template <class T>
struct Scan {
  const ScanAxes<T>& index;
  std::int64_t count;           // padded
  std::vector<float> distance;  // [count] squared, in units of the frame
  std::vector<std::int32_t> position;
  std::vector<Neighbour> found;

  explicit Scan(const ScanAxes<T>& of)
      : index(of),
        count(padded(of.search.points.count)),
        distance(static_cast<std::size_t>(count)),
        position(static_cast<std::size_t>(count)) {}

  void measure(const T* query) {
    const hn::ScalableTag<float> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t first = 0; first < count; first += kBlock) {
      const std::int64_t last = std::min(first + kBlock, count);
      for (std::int64_t axis = 0; axis < index.search.dimension(); ++axis) {
        const auto origin = hn::Set(d, index.frame.at(axis, query[axis]));
        const auto length = hn::Set(d, index.frame.length(axis));
        const bool periodic = index.search.length(axis) > 0;
        const float* coordinate = index.axes.data() + axis * index.stride;
        for (std::int64_t i = first; i < last; i += lanes) {
          auto difference = hn::Sub(hn::LoadU(d, coordinate + i), origin);
          if (periodic) {
            difference = hn::Abs(difference);
            difference = hn::Min(difference, hn::Abs(hn::Sub(length, difference)));
          }
          const auto square = hn::Mul(difference, difference);
          const auto sum = axis == 0 ? square : hn::Add(hn::LoadU(d, distance.data() + i), square);
          hn::StoreU(sum, d, distance.data() + i);
        }
      }
    }
  }

  // All within an enlarged squared radius and the limit of the search, their distances in double.
  void collect(std::int64_t query, float radius) {
    const std::int64_t within = collect_within(distance.data(), count, radius, position.data());
    found.clear();
    for (std::int64_t c = 0; c < within; ++c) {
      if (index.search.skip_own && position[c] == query) continue;
      const double squared = index.search.squared_distance(index.search.queries.point(query),
                                                           index.search.points.point(position[c]));
      if (squared <= index.search.limit) found.push_back({squared, position[c]});
    }
  }
};

template <class T>
void scan_queries(const ScanAxes<T>& index, std::int64_t begin, std::int64_t end,
                  const NeighbourLists<T>& out) {
  const NeighbourSearch<T>& search = index.search;
  Scan<T> scan(index);
  const std::int64_t need = out.k + (search.skip_own ? 1 : 0);  // the point finds itself
  float guess = 0;
  for (std::int64_t query = begin; query < end; ++query) {
    const T* q = search.queries.point(query);
    scan.measure(q);
    float radius = kInfinity;
    if (need < search.points.count) {
      const float start = guess > 0 ? guess : scan.distance[query == 0 && scan.count > 1 ? 1 : 0];
      radius = radius_for(scan.distance.data(), scan.count, need, start);
    }
    scan.collect(query, enlarged(radius, search.dimension(), index.frame.error_of(q)));
    out.write(query, scan.found);
    guess = radius < kInfinity ? radius : 0;
  }
}

template <class T>
void scan_within(const ScanAxes<T>& index, std::int64_t begin, std::int64_t end, std::int32_t first_point,
                 RowBlock<T>& out) {
  const NeighbourSearch<T>& search = index.search;
  Scan<T> scan(index);
  const auto limit = static_cast<float>(search.limit * index.frame.scale() * index.frame.scale());
  for (std::int64_t query = begin; query < end; ++query) {
    const T* q = search.queries.point(query);
    scan.measure(q);
    scan.collect(query, enlarged(limit, search.dimension(), index.frame.error_of(q)));
    out.add(scan.found, first_point);
  }
}

void scan_queries_float(const ScanAxes<float>& index, std::int64_t begin, std::int64_t end,
                        const NeighbourLists<float>& out) {
  scan_queries(index, begin, end, out);
}
void scan_queries_double(const ScanAxes<double>& index, std::int64_t begin, std::int64_t end,
                         const NeighbourLists<double>& out) {
  scan_queries(index, begin, end, out);
}
void scan_within_float(const ScanAxes<float>& index, std::int64_t begin, std::int64_t end,
                       std::int32_t first_point, RowBlock<float>& out) {
  scan_within(index, begin, end, first_point, out);
}
void scan_within_double(const ScanAxes<double>& index, std::int64_t begin, std::int64_t end,
                        std::int32_t first_point, RowBlock<double>& out) {
  scan_within(index, begin, end, first_point, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace topomask
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topomask {

HWY_EXPORT(scan_queries_float);
HWY_EXPORT(scan_queries_double);
HWY_EXPORT(scan_within_float);
HWY_EXPORT(scan_within_double);

namespace {

template <class T>
class ScanFinder : public WithinFinder<T> {
 public:
  explicit ScanFinder(const NeighbourSearch<T>& search) : index_(search) {}
  void run(std::int64_t begin, std::int64_t end, std::int32_t first_point, RowBlock<T>& out) const override {
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(scan_within_float)(index_, begin, end, first_point, out);
    } else {
      HWY_DYNAMIC_DISPATCH(scan_within_double)(index_, begin, end, first_point, out);
    }
  }

 private:
  ScanAxes<T> index_;
};

}  // namespace

template <class T>
void nearest_by_scan(const NeighbourSearch<T>& search, const NeighbourLists<T>& out) {
  const ScanAxes<T> index(search);
  for_runs(search.queries.count, 64, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(scan_queries_float)(index, begin, end, out);
    } else {
      HWY_DYNAMIC_DISPATCH(scan_queries_double)(index, begin, end, out);
    }
  });
}

template <class T>
std::unique_ptr<WithinFinder<T>> within_by_scan(const NeighbourSearch<T>& search) {
  return std::make_unique<ScanFinder<T>>(search);
}

template void nearest_by_scan(const NeighbourSearch<float>&, const NeighbourLists<float>&);
template void nearest_by_scan(const NeighbourSearch<double>&, const NeighbourLists<double>&);
template std::unique_ptr<WithinFinder<float>> within_by_scan(const NeighbourSearch<float>&);
template std::unique_ptr<WithinFinder<double>> within_by_scan(const NeighbourSearch<double>&);

}  // namespace topomask
#endif
