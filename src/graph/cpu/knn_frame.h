// Coordinates as floats, for filters that run on whole vectors.
//
// float points are taken as they are. double points are centred, scaled to at most 1 and rounded, points in a
// periodic box are wrapped first; then a filter by float distances has to allow for `error_of`.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "graph/cpu/knn.h"

namespace topomask {

template <class T>
class FloatFrame {
 public:
  explicit FloatFrame(const NeighbourSearch<T>& search) : search_(&search) {
    if (exact()) return;
    const auto axes = static_cast<std::size_t>(search.dimension());
    origin_.resize(axes);
    error_.resize(axes);
    double largest = 0;
    for (std::size_t a = 0; a < axes; ++a) largest = std::max(largest, measure_axis(a));
    // A power of two, so that scaling rounds nothing.
    if (largest > 0) scale_ = std::ldexp(1.0, std::clamp(-std::ilogb(largest) - 1, -1000, 1000));
  }

  // Whether floats say all there is to know.
  bool exact() const { return std::is_same_v<T, float> && search_->box == nullptr; }
  double scale() const { return scale_; }
  float length(std::int64_t axis) const { return static_cast<float>(search_->length(axis) * scale_); }

  float at(std::int64_t axis, T x) const {
    if constexpr (std::is_same_v<T, float>) {
      if (search_->box == nullptr) return x;
    }
    return static_cast<float>((wrapped(static_cast<double>(x), search_->length(axis)) - origin_[axis]) *
                              scale_);
  }

  // How far the distance of the floats of a query and of any point can be from that of the coordinates, in
  // units of the frame.
  double error_of(const T* query) const {
    if (exact()) return 0;
    double sum = 0;
    for (std::size_t a = 0; a < error_.size(); ++a) {
      const double error = error_[a] + error_at(a, static_cast<double>(query[a]));
      sum += error * error;
    }
    return std::sqrt(sum) * scale_ * (1 + 0x1p-20) + kTiny;
  }

 private:
  // Sets origin and error of an axis; returns the largest magnitude on it.
  double measure_axis(std::size_t a) {
    const PointSet<T>& points = search_->points;
    const auto axis = static_cast<std::int64_t>(a);
    const double length = search_->length(axis);
    double low = 0, high = 0;
    for (std::int64_t i = 0; i < points.count; ++i) {
      const auto x = static_cast<double>(points.point(i)[axis]);
      low = i == 0 ? x : std::min(low, x);
      high = i == 0 ? x : std::max(high, x);
    }
    origin_[a] = length > 0 ? length / 2 : low / 2 + high / 2;
    error_[a] = std::max(error_at(a, low), error_at(a, high));
    return length > 0 ? length / 2 : std::max(high - origin_[a], origin_[a] - low);
  }

  // Rounding to float of a coordinate and, where it is periodic, of the length of the box.
  double error_at(std::size_t a, double x) const {
    const double length = search_->length(static_cast<std::int64_t>(a));
    if (length > 0) return 0x1p-22 * length + kWrapError * (std::abs(x) + length);
    return 0x1p-23 * std::abs(x - origin_[a]) + 0x1p-51 * std::abs(origin_[a]);
  }

  static constexpr double kTiny = 1e-37;  // floats below this lose bits

  const NeighbourSearch<T>* search_;
  std::vector<double> origin_, error_;  // [dimension]
  double scale_ = 1;
};

}  // namespace topomask
