#include "data/cpu/drawing.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace topomask {

GreyPicture::GreyPicture(int size) : size_(size), level_(static_cast<std::size_t>(size) * size, 0.0) {}

void GreyPicture::stroke(Point from, Point to, double radius, double level) {
  const double dx = to.x - from.x, dy = to.y - from.y, squared = dx * dx + dy * dy;
  const auto first = [&](double a, double b) {
    return std::max(0, static_cast<int>(std::floor(std::min(a, b) - radius - 1)));
  };
  const auto last = [&](double a, double b) {
    return std::min(size_ - 1, static_cast<int>(std::ceil(std::max(a, b) + radius + 1)));
  };
  for (int y = first(from.y, to.y); y <= last(from.y, to.y); ++y) {
    for (int x = first(from.x, to.x); x <= last(from.x, to.x); ++x) {
      const double px = x + 0.5 - from.x, py = y + 0.5 - from.y;
      const double along = squared > 0 ? std::clamp((px * dx + py * dy) / squared, 0.0, 1.0) : 0.0;
      const double distance = std::hypot(px - along * dx, py - along * dy);
      const double cover = std::clamp(radius + 0.5 - distance, 0.0, 1.0);
      double& pixel = level_[static_cast<std::size_t>(y) * size_ + x];
      pixel = std::max(pixel, cover * level);
    }
  }
}

void GreyPicture::finish(double noise, RandomStream& random, std::uint8_t* out) const {
  const auto to_byte = [](double level) {
    return static_cast<std::uint8_t>(std::lround(255 * std::clamp(level, 0.0, 1.0)));
  };
  for (std::size_t i = 0; i < level_.size(); i += 2) {
    const NormalPair normal = normal_pair(random);
    out[i] = to_byte(level_[i] + noise * normal.first);
    if (i + 1 < level_.size()) out[i + 1] = to_byte(level_[i + 1] + noise * normal.second);
  }
}

NormalPair normal_pair(RandomStream& random) {
  // 1 - u is never 0.
  const double radius = std::sqrt(-2 * std::log(1 - random.next_double()));
  const double angle = 2 * std::numbers::pi * random.next_double();
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace topomask
