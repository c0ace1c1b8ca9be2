// SIMD over candidate distances, compiled once per instruction set (Highway includes this file several
// times).
//
// Float distances only filter: they are wrong by a few units in the last place, so everything within a
// slightly larger radius is kept and compared again in double.
#if defined(TOPOMASK_KNN_SCAN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPOMASK_KNN_SCAN_INL_H
#undef TOPOMASK_KNN_SCAN_INL_H
#else
#define TOPOMASK_KNN_SCAN_INL_H
#endif

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace topomask {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Arrays are read in whole vectors: `count` is rounded up, and the tail must be NaN, which is within no
// radius.
inline std::int64_t padded(std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  return (count + lanes - 1) / lanes * lanes;
}

inline std::int64_t count_within(const float* distance, std::int64_t count, float radius) {
  const hn::ScalableTag<float> d;
  const auto limit = hn::Set(d, radius);
  std::size_t within = 0;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    within += hn::CountTrue(d, hn::Le(hn::LoadU(d, distance + i), limit));
  }
  return static_cast<std::int64_t>(within);
}

// A squared radius that holds at least `need` candidates (there must be that many) and seldom many more.
// `guess` only decides how long it takes.
inline float radius_for(const float* distance, std::int64_t count, std::int64_t need, float guess) {
  constexpr int kMaxRounds = 24;
  float radius = std::max(guess, FLT_MIN), low = 0, high = kInfinity;
  for (int round = 0; round < kMaxRounds; ++round) {
    const std::int64_t within = count_within(distance, count, radius);
    if (within >= need && within <= need + need / 2 + 6) return radius;
    (within < need ? low : high) = radius;
    // On a surface the count grows with the squared radius: aim a little high.
    const float aim = radius * (1.3f * static_cast<float>(need) + 1) / (static_cast<float>(within) + 0.5f);
    if (aim > low && aim < high) {
      radius = aim;
    } else if (high < kInfinity) {
      radius = low + (high - low) / 2;
    } else {
      radius = 4 * radius;
    }
  }
  return high;  // infinity takes all candidates
}

// The squared radius enlarged so that no rounding can lose a candidate that is as near as the farthest within
// `radius`. Each of the `dimension` terms and sums rounds by at most 2^-24; FLT_MIN covers squares that
// underflow; `error` bounds how far a distance of floats is from that of the coordinates they stand for.
inline float enlarged(float radius, std::int64_t dimension, double error) {
  const double margin = static_cast<double>(dimension + 8) * 0x1p-22;
  const double root = error == 0 ? 0 : std::sqrt(static_cast<double>(radius)) * (1 + margin) + 2 * error;
  const double square = error == 0 ? static_cast<double>(radius) : root * root;
  const double limit = square * (1 + margin) + static_cast<double>(dimension) * 4 * FLT_MIN;
  return limit < FLT_MAX ? static_cast<float>(limit) * (1 + 0x1p-22f) : kInfinity;
}

// Positions of all candidates within a squared radius.
inline std::int64_t collect_within(const float* distance, std::int64_t count, float radius,
                                   std::int32_t* position) {
  const hn::ScalableTag<float> d;
  const auto limit = hn::Set(d, radius);
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto within = hn::Le(hn::LoadU(d, distance + i), limit);
    if (hn::AllFalse(d, within)) continue;
    alignas(8) std::uint8_t bits[HWY_MAX_BYTES / 4 / 8 + 8] = {};
    const std::size_t bytes = hn::StoreMaskBits(d, within, bits);
    for (std::size_t byte = 0; byte < bytes; ++byte) {
      for (unsigned rest = bits[byte]; rest != 0; rest &= rest - 1) {
        position[found++] =
            static_cast<std::int32_t>(i) + static_cast<std::int32_t>(8 * byte) + __builtin_ctz(rest);
      }
    }
  }
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace topomask
HWY_AFTER_NAMESPACE();

#endif
