// Nearest neighbours in many dimensions: all distances, one vector of candidates at a time.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "graph/cpu/knn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/cpu/knn_scan.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway asks.
#include "graph/cpu/knn_scan-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topomask {
namespace HWY_NAMESPACE {

// Candidates per block: the block of distances stays in the first-level cache while the dimensions go by.
constexpr std::int64_t kBlock = 2048;

// `axes`: [dimension, stride], the coordinates one axis after the other, NaN from `count` on.
void scan_queries(const PointSet& points, const float* axes, std::int64_t stride, std::int64_t k,
                  std::int64_t begin, std::int64_t end, std::int32_t* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t count = padded(points.count), dimension = points.dimension;
  std::vector<float> distance(static_cast<std::size_t>(count));
  std::vector<std::int32_t> position(static_cast<std::size_t>(count));
  std::vector<Neighbour> candidates;
  float guess = 0;
  for (std::int64_t query = begin; query < end; ++query) {
    const float* q = points.point(query);
    for (std::int64_t first = 0; first < count; first += kBlock) {
      const std::int64_t last = std::min(first + kBlock, count);
      for (std::int64_t axis = 0; axis < dimension; ++axis) {
        const auto origin = hn::Set(d, q[axis]);
        const float* coordinate = axes + axis * stride;
        for (std::int64_t i = first; i < last; i += lanes) {
          const auto difference = hn::Sub(hn::LoadU(d, coordinate + i), origin);
          const auto square = hn::Mul(difference, difference);
          const auto sum = axis == 0 ? square : hn::Add(hn::LoadU(d, distance.data() + i), square);
          hn::StoreU(sum, d, distance.data() + i);
        }
      }
    }
    // One more than k, because the point finds itself.
    const float radius =
        radius_for(distance.data(), count, k + 1, guess > 0 ? guess : distance[query == 0 ? 1 : 0]);
    const std::int64_t found = collect_within(distance.data(), count, radius, dimension, position.data());
    candidates.clear();
    for (std::int64_t c = 0; c < found; ++c) {
      if (position[c] == query) continue;
      double sum = 0;
      for (std::int64_t axis = 0; axis < dimension; ++axis) {
        const double difference = static_cast<double>(q[axis]) - points.point(position[c])[axis];
        sum += difference * difference;
      }
      candidates.push_back({sum, position[c]});
    }
    write_nearest(candidates, k, out + query * k);
    guess = radius < kInfinity ? radius : 0;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace topomask
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topomask {

HWY_EXPORT(scan_queries);

void nearest_by_scan(const PointSet& points, std::int64_t k, std::int32_t* out) {
  // The widest vector of any target, not HWY_MAX_BYTES, which is that of the baseline here.
  constexpr std::int64_t kPadding = 64;
  const std::int64_t stride = points.count + kPadding;
  std::vector<float> axes(static_cast<std::size_t>(stride * points.dimension),
                          std::numeric_limits<float>::quiet_NaN());
  for (std::int64_t i = 0; i < points.count; ++i) {
    for (std::int64_t axis = 0; axis < points.dimension; ++axis)
      axes[axis * stride + i] = points.point(i)[axis];
  }
  parallel_for(points.count, 16, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(scan_queries)(points, axes.data(), stride, k, begin, end, out);
  });
}

}  // namespace topomask
#endif
