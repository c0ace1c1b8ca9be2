#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "core/check.h"
#include "data/cpu/drawing.h"
#include "data/cpu/generated.h"

namespace topomask {
namespace {

constexpr std::uint32_t kPurpose = 0x50415448;  // "PATH"
constexpr double kDash = 3, kGap = 2;           // pixels along a curve
constexpr double kThickness = 0.5, kDotRadius = 1.5;
// Curves keep more than twice a gap apart: bridging the gaps of a curve never reaches another one.
constexpr double kClearance = 5.5;
constexpr double kBorder = 2.5;
constexpr double kBend = 0.45;  // the most that the turn from dash to dash changes, in radians
constexpr int kTriesForDash = 8, kTriesForCurve = 40, kTriesForPicture = 400;

struct Dash {
  Point from, to;
};
using Curve = std::vector<Dash>;

double squared_distance(Point p, const Dash& dash) {
  const double dx = dash.to.x - dash.from.x, dy = dash.to.y - dash.from.y;
  const double along = ((p.x - dash.from.x) * dx + (p.y - dash.from.y) * dy) / (dx * dx + dy * dy);
  const double t = std::clamp(along, 0.0, 1.0);
  const double x = p.x - dash.from.x - t * dx, y = p.y - dash.from.y - t * dy;
  return x * x + y * y;
}

// Where a dash may lie: inside the picture and away from all curves. What finished curves take up is kept as
// a map of half pixels.
class Clearance {
 public:
  explicit Clearance(int size)
      : size_(size), side_(2 * size), taken_(static_cast<std::size_t>(side_) * side_, false) {}

  // `own` is the curve that the dash would continue: it keeps away from its past too, but for the dash
  // before.
  bool allows(const Dash& dash, const Curve& own) const {
    constexpr int kPoints = static_cast<int>(2 * kDash);
    for (int i = 0; i <= kPoints; ++i) {
      const double t = static_cast<double>(i) / kPoints;
      const Point p{dash.from.x + t * (dash.to.x - dash.from.x), dash.from.y + t * (dash.to.y - dash.from.y)};
      const bool inside =
          p.x >= kBorder && p.y >= kBorder && p.x <= size_ - kBorder && p.y <= size_ - kBorder;
      if (!inside || taken_[index(static_cast<int>(2 * p.x), static_cast<int>(2 * p.y))]) return false;
      for (std::size_t k = 0; k + 1 < own.size(); ++k) {
        if (squared_distance(p, own[k]) <= kClearance * kClearance) return false;
      }
    }
    return true;
  }

  void add(const Curve& curve) {
    const int radius = static_cast<int>(2 * kClearance + kDash) + 1;
    for (const Dash& dash : curve) {
      const int cx = static_cast<int>(dash.from.x + dash.to.x),
                cy = static_cast<int>(dash.from.y + dash.to.y);
      for (int y = std::max(0, cy - radius); y <= std::min(side_ - 1, cy + radius); ++y) {
        for (int x = std::max(0, cx - radius); x <= std::min(side_ - 1, cx + radius); ++x) {
          const Point p{x / 2.0 + 0.25, y / 2.0 + 0.25};
          if (squared_distance(p, dash) <= kClearance * kClearance) taken_[index(x, y)] = true;
        }
      }
    }
  }

 private:
  std::size_t index(int x, int y) const { return static_cast<std::size_t>(y) * side_ + x; }

  int size_, side_;
  std::vector<bool> taken_;
};

Point step(Point from, double angle, double length) {
  return {from.x + length * std::cos(angle), from.y + length * std::sin(angle)};
}

// One attempt to place a curve of this many dashes where there is room.
std::optional<Curve> grow_curve(int dashes, int size, const Clearance& clearance, RandomStream& random) {
  Curve curve;
  Point at{uniform(random, kBorder, size - kBorder), uniform(random, kBorder, size - kBorder)};
  double angle = uniform(random, 0, 2 * std::numbers::pi), bend = 0;
  for (int tries = 0; static_cast<int>(curve.size()) < dashes;) {
    const double new_bend = 0.6 * bend + uniform(random, -kBend, kBend), new_angle = angle + new_bend;
    const Point from = curve.empty() ? at : step(at, angle + new_bend / 2, kGap);
    const Dash dash{from, step(from, new_angle, kDash)};
    if (!clearance.allows(dash, curve)) {
      if (++tries == kTriesForDash) return std::nullopt;
      continue;
    }
    tries = 0;
    curve.push_back(dash);
    at = dash.to, angle = new_angle, bend = new_bend;
  }
  return curve;
}

std::optional<Curve> find_curve(int dashes, int size, Clearance& clearance, RandomStream& random) {
  for (int tries = 0; tries < kTriesForCurve; ++tries) {
    if (auto curve = grow_curve(dashes, size, clearance, random)) {
      clearance.add(*curve);
      return curve;
    }
  }
  return std::nullopt;
}

// Where the two dots go. Of the four ways to join two curves the one is taken whose dots are about as far
// apart as the ends of one curve, so that their distance says little about the answer.
std::array<Point, 2> choose_dots(const Curve& a, const Curve& b, bool connected) {
  const std::array<Point, 2> ends_a = {a.front().from, a.back().to}, ends_b = {b.front().from, b.back().to};
  if (connected) return ends_a;
  const auto distance = [](Point p, Point q) { return std::hypot(p.x - q.x, p.y - q.y); };
  const double wanted = distance(ends_a[0], ends_a[1]);
  std::array<Point, 2> best = {ends_a[0], ends_b[0]};
  for (const Point p : ends_a) {
    for (const Point q : ends_b) {
      if (std::abs(distance(p, q) - wanted) < std::abs(distance(best[0], best[1]) - wanted)) best = {p, q};
    }
  }
  return best;
}

}  // namespace

void draw_pathfinder(const PathfinderOptions& options, int label, std::uint64_t seed, std::uint8_t* out) {
  check(options.dashes >= 1, "pathfinder: expected curves of at least 1 dash, got {}", options.dashes);
  RandomStream random(seed, kPurpose);
  for (int tries = 0; tries < kTriesForPicture; ++tries) {
    Clearance clearance(options.size);
    std::vector<Curve> curves;
    for (int i = 0; i < 2; ++i) {
      if (auto curve = find_curve(options.dashes, options.size, clearance, random)) {
        curves.push_back(std::move(*curve));
      }
    }
    if (curves.size() < 2) continue;
    const int short_dashes = std::max(2, options.dashes / 3);
    for (int i = 0; i < options.distractors; ++i) {
      auto curve = find_curve(short_dashes, options.size, clearance, random);
      if (!curve) break;  // the picture is full
      curves.push_back(std::move(*curve));
    }

    GreyPicture picture(options.size);
    for (const Curve& curve : curves) {
      for (const Dash& dash : curve)
        picture.stroke(dash.from, dash.to, kThickness, uniform(random, 0.45, 0.7));
    }
    for (const Point dot : choose_dots(curves[0], curves[1], label == 1)) picture.dot(dot, kDotRadius, 1);
    picture.finish(options.noise, random, out);
    return;
  }
  fail("pathfinder: two curves of {} dashes do not fit into {} x {} pixels", options.dashes, options.size,
       options.size);
}

}  // namespace topomask
