#include "graph/cpu/orders.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/parallel.h"

namespace topomask {
namespace {

// Breadth-first levels from one node, reusable without clearing: `seen` holds the number of the search.
class LevelSearch {
 public:
  explicit LevelSearch(const CsrView& graph)
      : graph_(graph), seen_(static_cast<std::size_t>(graph.num_nodes), 0) {}

  // Returns the number of levels and leaves the nodes of the last one in [last_level_begin, queue.size()).
  std::int64_t run(std::int32_t start) {
    ++search_;
    queue.assign(1, start);
    seen_[start] = search_;
    std::int64_t levels = 0;
    for (std::size_t level_end = 0; level_end < queue.size(); ++levels) {
      last_level_begin = level_end;
      const std::size_t level_begin = level_end;
      level_end = queue.size();
      for (std::size_t q = level_begin; q < level_end; ++q) {
        for (std::int64_t e = graph_.row_ptr[queue[q]]; e < graph_.row_ptr[queue[q] + 1]; ++e) {
          const std::int32_t next = graph_.col[e];
          if (seen_[next] == search_) continue;
          seen_[next] = search_;
          queue.push_back(next);
        }
      }
    }
    return levels;
  }

  std::vector<std::int32_t> queue;
  std::size_t last_level_begin = 0;

 private:
  CsrView graph_;
  std::vector<std::int32_t> seen_;
  std::int32_t search_ = 0;
};

// George & Liu 1979: walk to a far node of small degree until the graph does not get longer any more. A few
// rounds suffice in practice; the cap keeps the whole order O(E log degree).
std::int32_t pseudo_peripheral(const CsrView& graph, LevelSearch& search, std::int32_t node) {
  constexpr int kMaxRounds = 8;
  std::int64_t levels = search.run(node);
  for (int round = 0; round < kMaxRounds; ++round) {
    const auto by_degree = [&](std::int32_t a, std::int32_t b) {
      return std::pair(graph.degree(a), a) < std::pair(graph.degree(b), b);
    };
    const std::int32_t candidate =
        *std::min_element(search.queue.begin() + search.last_level_begin, search.queue.end(), by_degree);
    const std::int64_t candidate_levels = search.run(candidate);
    if (candidate_levels <= levels) break;
    levels = candidate_levels;
    node = candidate;
  }
  return node;
}

// Spreads the low 21 bits to every third bit.
std::uint64_t spread_bits(std::uint64_t x) {
  x = (x | x << 32) & 0x001F00000000FFFFull;
  x = (x | x << 16) & 0x001F0000FF0000FFull;
  x = (x | x << 8) & 0x100F00F00F00F00Full;
  x = (x | x << 4) & 0x10C30C30C30C30C3ull;
  return (x | x << 2) & 0x1249249249249249ull;
}

}  // namespace

std::vector<std::int32_t> reverse_cuthill_mckee_order(const CsrView& graph) {
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(graph.num_nodes));
  std::vector<bool> placed(static_cast<std::size_t>(graph.num_nodes), false);
  LevelSearch search(graph);
  for (std::int64_t i = 0; i < graph.num_nodes; ++i) {
    if (placed[i]) continue;
    const std::int32_t start = pseudo_peripheral(graph, search, static_cast<std::int32_t>(i));
    std::size_t head = order.size();
    order.push_back(start);
    placed[start] = true;
    for (; head < order.size(); ++head) {
      const std::size_t first_child = order.size();
      for (std::int64_t e = graph.row_ptr[order[head]]; e < graph.row_ptr[order[head] + 1]; ++e) {
        if (placed[graph.col[e]]) continue;
        placed[graph.col[e]] = true;
        order.push_back(graph.col[e]);
      }
      std::sort(order.begin() + first_child, order.end(), [&](std::int32_t a, std::int32_t b) {
        return std::pair(graph.degree(a), a) < std::pair(graph.degree(b), b);
      });
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<std::int32_t> morton_point_order(const float* points, std::int64_t count,
                                             std::int64_t dimension) {
  constexpr double kCells = 1 << 21;
  std::array<double, 3> low{}, high{};
  for (std::int64_t d = 0; d < dimension; ++d) {
    low[d] = high[d] = count > 0 ? points[d] : 0;
    for (std::int64_t i = 0; i < count; ++i) {
      low[d] = std::min<double>(low[d], points[i * dimension + d]);
      high[d] = std::max<double>(high[d], points[i * dimension + d]);
    }
  }
  // One scale for all axes: cubes, not boxes, are what is near in Euclidean distance.
  double extent = 0;
  for (std::int64_t d = 0; d < dimension; ++d) extent = std::max(extent, high[d] - low[d]);
  const double scale = extent > 0 ? kCells / extent : 0;

  std::vector<std::pair<std::uint64_t, std::int32_t>> keys(static_cast<std::size_t>(count));
  parallel_for(count, 16384, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::uint64_t code = 0;
      for (std::int64_t d = 0; d < dimension; ++d) {
        const double cell = std::min((points[i * dimension + d] - low[d]) * scale, kCells - 1);
        code |= spread_bits(static_cast<std::uint64_t>(cell)) << d;
      }
      keys[i] = {code, static_cast<std::int32_t>(i)};
    }
  });
  std::sort(keys.begin(), keys.end());
  std::vector<std::int32_t> order(keys.size());
  std::transform(keys.begin(), keys.end(), order.begin(), [](const auto& key) { return key.second; });
  return order;
}

}  // namespace topomask
