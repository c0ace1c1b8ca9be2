// Graphs given by a formula: grids (paths and cycles are one-dimensional grids), hypercubes, complete trees.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/check.h"
#include "core/parallel.h"
#include "core/running_sum.h"
#include "graph/cpu/generators.h"
#include "graph/cpu/limits.h"

namespace topomask {
namespace {

constexpr std::int64_t kNodesPerTask = 8192;

// The coordinates at most one step away from `here` on one axis, itself included: ascending and distinct,
// also where a torus of extent 1 or 2 would reach the same cell twice.
struct Reach {
  std::array<std::int64_t, 3> coordinate{};
  int count = 0;

  const std::int64_t* begin() const { return coordinate.data(); }
  const std::int64_t* end() const { return coordinate.data() + count; }
};

Reach reach(std::int64_t here, std::int64_t extent, bool wrap) {
  Reach result;
  const auto add = [&](std::int64_t there) {
    if (there >= 0 && there < extent) result.coordinate[result.count++] = there;
  };
  // A step over either end of a torus lands beyond the step that stays inside it; extent 2 has no such step.
  const bool wraps = wrap && extent > 2;
  if (wraps && here == extent - 1) add(0);
  add(here - 1);
  add(here);
  add(here + 1);
  if (wraps && here == 0) add(extent - 1);
  return result;
}

CsrArrays rows_with_degrees(std::int64_t num_nodes) {
  CsrArrays rows;
  rows.row_ptr.assign(static_cast<std::size_t>(num_nodes) + 1, 0);
  return rows;
}

void allocate_entries(CsrArrays& rows) {
  running_sum(rows.row_ptr.data(), static_cast<std::int64_t>(rows.row_ptr.size()));
  rows.col.resize(static_cast<std::size_t>(rows.row_ptr.back()));
  rows.weight.assign(rows.col.size(), 1.0f);
}

using Extent = std::array<std::int64_t, 3>;

Extent checked_extent(std::span<const std::int64_t> extent) {
  check(extent.size() >= 1 && extent.size() <= 3, "grid_graph: expected 1 to 3 extents, got {}",
        extent.size());
  Extent padded = {1, 1, 1};
  std::copy(extent.begin(), extent.end(), padded.end() - extent.size());
  std::int64_t num_nodes = 1;
  for (const std::int64_t size : padded) {
    check(size >= 0, "grid_graph: expected extents of at least 0, got {}", size);
    check_num_nodes("grid_graph", size);
    check(size == 0 || num_nodes <= kMaxNodes / size,
          "grid_graph: a graph has at most 2^31 - 1 = {} nodes, got {}", kMaxNodes, fmt::join(extent, " x "));
    num_nodes *= size;
  }
  return padded;
}

// Walks the cells in node order and hands each one its reach on the three axes.
template <class Visit>
void for_each_cell(const Extent& extent, bool wrap, const Visit& visit) {
  const std::int64_t lines = extent[0] * extent[1];
  parallel_for(
      lines, std::max<std::int64_t>(1, kNodesPerTask / std::max<std::int64_t>(1, extent[2])),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t line = begin; line < end; ++line) {
          const Reach r0 = reach(line / extent[1], extent[0], wrap);
          const Reach r1 = reach(line % extent[1], extent[1], wrap);
          for (std::int64_t x2 = 0; x2 < extent[2]; ++x2) {
            visit(Extent{line / extent[1], line % extent[1], x2}, r0, r1, reach(x2, extent[2], wrap));
          }
        }
      });
}

}  // namespace

CsrArrays grid_rows(std::span<const std::int64_t> given_extent, bool diagonals, bool wrap) {
  const Extent extent = checked_extent(given_extent);
  const std::int64_t num_nodes = extent[0] * extent[1] * extent[2];
  double most_neighbours = diagonals ? 1 : 0;
  for (const std::int64_t size : extent) {
    const double others = static_cast<double>(std::min<std::int64_t>(2, std::max<std::int64_t>(size - 1, 0)));
    most_neighbours = diagonals ? most_neighbours * (others + 1) : most_neighbours + others;
  }
  check_num_entries("grid_graph", static_cast<double>(num_nodes) * most_neighbours);
  const auto node = [&](std::int64_t x0, std::int64_t x1, std::int64_t x2) {
    return (x0 * extent[1] + x1) * extent[2] + x2;
  };

  CsrArrays rows = rows_with_degrees(num_nodes);
  for_each_cell(extent, wrap, [&](const Extent& x, const Reach& r0, const Reach& r1, const Reach& r2) {
    const int degree = diagonals ? r0.count * r1.count * r2.count - 1 : r0.count + r1.count + r2.count - 3;
    rows.row_ptr[node(x[0], x[1], x[2]) + 1] = degree;
  });
  allocate_entries(rows);

  // Each reach ascends, so lexicographic loops write the columns in ascending order.
  for_each_cell(extent, wrap, [&](const Extent& x, const Reach& r0, const Reach& r1, const Reach& r2) {
    std::int32_t* out = rows.col.data() + rows.row_ptr[node(x[0], x[1], x[2])];
    for (const std::int64_t y0 : r0) {
      if (!diagonals && y0 != x[0]) {
        *out++ = static_cast<std::int32_t>(node(y0, x[1], x[2]));
        continue;
      }
      for (const std::int64_t y1 : r1) {
        if (!diagonals && y1 != x[1]) {
          *out++ = static_cast<std::int32_t>(node(y0, y1, x[2]));
          continue;
        }
        for (const std::int64_t y2 : r2) {
          if (y0 != x[0] || y1 != x[1] || y2 != x[2]) *out++ = static_cast<std::int32_t>(node(y0, y1, y2));
        }
      }
    }
  });
  return rows;
}

CsrArrays hypercube_rows(int dimension) {
  check(dimension >= 0 && dimension <= 30, "hypercube_graph: expected a dimension of 0 to 30, got {}",
        dimension);
  const std::int64_t num_nodes = std::int64_t{1} << dimension;
  check_num_entries("hypercube_graph", static_cast<double>(num_nodes) * dimension);
  CsrArrays rows = rows_with_degrees(num_nodes);
  std::fill(rows.row_ptr.begin() + 1, rows.row_ptr.end(), dimension);
  allocate_entries(rows);
  parallel_for(num_nodes, kNodesPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t v = begin; v < end; ++v) {
      std::int32_t* out = rows.col.data() + rows.row_ptr[v];
      // Clearing a high bit gives the smallest neighbour, setting a high bit the largest.
      for (int bit = dimension - 1; bit >= 0; --bit) {
        if (v >> bit & 1) *out++ = static_cast<std::int32_t>(v ^ (std::int64_t{1} << bit));
      }
      for (int bit = 0; bit < dimension; ++bit) {
        if (!(v >> bit & 1)) *out++ = static_cast<std::int32_t>(v ^ (std::int64_t{1} << bit));
      }
    }
  });
  return rows;
}

CsrArrays tree_rows(int depth, int branching) {
  check(depth >= 0, "complete_tree: expected a depth of at least 0, got {}", depth);
  check(branching >= 1, "complete_tree: expected a branching of at least 1, got {}", branching);
  std::int64_t num_nodes = 1, level = 1;
  for (int i = 0; i < depth; ++i) {
    level *= branching;
    num_nodes += level;
    check(num_nodes <= kMaxNodes,
          "complete_tree: a graph has at most 2^31 - 1 = {} nodes, but depth {} with branching {} has more",
          kMaxNodes, depth, branching);
  }
  check_num_entries("complete_tree", 2.0 * static_cast<double>(num_nodes - 1));
  const std::int64_t inner = num_nodes - level;  // these have children: branching * v + 1, + 2, ...
  CsrArrays rows = rows_with_degrees(num_nodes);
  for (std::int64_t v = 0; v < num_nodes; ++v) rows.row_ptr[v + 1] = (v > 0) + (v < inner ? branching : 0);
  allocate_entries(rows);
  for (std::int64_t v = 0; v < num_nodes; ++v) {
    std::int32_t* out = rows.col.data() + rows.row_ptr[v];
    if (v > 0) *out++ = static_cast<std::int32_t>((v - 1) / branching);
    for (std::int64_t child = 1; v < inner && child <= branching; ++child) {
      *out++ = static_cast<std::int32_t>(branching * v + child);
    }
  }
  return rows;
}

}  // namespace topomask
