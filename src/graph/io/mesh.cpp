#include "graph/io/mesh.h"

#include <algorithm>

namespace topomask {

void Mesh::add_side(std::int32_t a, std::int32_t b) {
  if (a == b) return;  // a degenerate polygon's repeated corner
  const auto low = static_cast<std::uint64_t>(std::min(a, b)),
             high = static_cast<std::uint64_t>(std::max(a, b));
  sides_.push_back(low << 32 | high);
}

void Mesh::add_line(std::span<const std::int32_t> points) {
  for (std::size_t k = 1; k < points.size(); ++k) add_side(points[k - 1], points[k]);
}

void Mesh::add_polygon(std::span<const std::int32_t> corners) {
  add_line(corners);
  if (corners.size() > 2) add_side(corners.back(), corners.front());
}

void Mesh::add_strip(std::span<const std::int32_t> corners) {
  bool joined = false;  // the first side of this triangle is the last one of the triangle before
  for (std::size_t k = 2; k < corners.size(); ++k) {
    const std::int32_t a = corners[k - 2], b = corners[k - 1], c = corners[k];
    const bool degenerate = a == b || b == c || a == c;
    if (!degenerate) {
      if (!joined) add_side(a, b);
      add_side(a, c);
      add_side(b, c);
    }
    joined = !degenerate;
  }
}

EdgeList Mesh::graph() && {
  std::sort(sides_.begin(), sides_.end());
  sides_.erase(std::unique(sides_.begin(), sides_.end()), sides_.end());
  EdgeList edges;
  edges.num_nodes = num_vertices();
  edges.source.reserve(sides_.size());
  edges.target.reserve(sides_.size());
  for (const std::uint64_t side : sides_) {
    edges.source.push_back(static_cast<std::int32_t>(side >> 32));
    edges.target.push_back(static_cast<std::int32_t>(side & 0xFFFFFFFFu));
  }
  return edges;
}

}  // namespace topomask
