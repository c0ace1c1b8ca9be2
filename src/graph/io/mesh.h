// A polygon mesh as far as its graph needs it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/edge_list.h"

namespace topomask {

class Mesh {
 public:
  std::vector<double> coordinate;  // [vertices, 3], as in the file: may be infinite or nan

  std::int64_t num_vertices() const { return static_cast<std::int64_t>(coordinate.size()) / 3; }

  // Adds the sides of a closed polygon, or of an open line. Indices from 0.
  void add_polygon(std::span<const std::int32_t> corners);
  void add_line(std::span<const std::int32_t> points);
  // The sides of the triangles 012, 123, 234, ...; those with a repeated corner only link strips to each
  // other.
  void add_strip(std::span<const std::int32_t> corners);

  // Each side once, from the smaller to the larger index, in ascending order; undirected, without weights.
  EdgeList graph() &&;

 private:
  void add_side(std::int32_t a, std::int32_t b);

  std::vector<std::uint64_t> sides_;  // smaller index, larger index
};

// Where only the vertices are wanted, a PLY file may hold its sides in an element that is not understood.
enum class Sides { needed, optional };

Mesh parse_obj(std::string_view content, const std::string& name);
Mesh parse_ply(std::string_view content, const std::string& name, Sides sides);

}  // namespace topomask
