// k-d tree with tight boxes. Slower than cells on even data, but O(log N) a query on any data.
#include <algorithm>
#include <limits>
#include <numeric>

#include "core/parallel.h"
#include "graph/cpu/knn.h"

namespace topomask {
namespace {

constexpr std::int64_t kLeafSize = 12;

class KdTree {
 public:
  explicit KdTree(const PointSet& points) : points_(points), order_(static_cast<std::size_t>(points.count)) {
    std::iota(order_.begin(), order_.end(), 0);
    if (points.count > 0) build(0, points.count);
    sorted_.resize(static_cast<std::size_t>(points.count * points.dimension));
    for (std::int64_t i = 0; i < points.count; ++i) {
      std::copy_n(points.point(order_[i]), points.dimension, sorted_.begin() + i * points.dimension);
    }
  }

  // Leaves the k nearest of point `query` in `found`, in no particular order.
  void nearest(std::int32_t query, std::int64_t k, std::vector<Neighbour>& found) const {
    found.clear();
    visit(0, box_distance(0, points_.point(query)), query, static_cast<std::size_t>(k), found);
  }

 private:
  struct Node {
    std::int64_t begin, end;
    std::int64_t right = 0;  // 0: a leaf. The left child is the next node.
    std::int32_t min_index = 0;
  };

  std::int64_t build(std::int64_t begin, std::int64_t end) {
    const std::int64_t id = static_cast<std::int64_t>(nodes_.size()), dimension = points_.dimension;
    nodes_.push_back({begin, end});
    box_.resize(box_.size() + 2 * static_cast<std::size_t>(dimension));
    nodes_[id].min_index = *std::min_element(order_.begin() + begin, order_.begin() + end);
    std::int64_t widest = 0;
    double width = -1;
    for (std::int64_t d = 0; d < dimension; ++d) {
      float low = points_.point(order_[begin])[d], high = low;
      for (std::int64_t i = begin; i < end; ++i) {
        low = std::min(low, points_.point(order_[i])[d]);
        high = std::max(high, points_.point(order_[i])[d]);
      }
      box_[(2 * id) * dimension + d] = low;
      box_[(2 * id + 1) * dimension + d] = high;
      if (static_cast<double>(high) - low > width) {
        width = static_cast<double>(high) - low;
        widest = d;
      }
    }
    if (end - begin <= kLeafSize) return id;
    // Equal coordinates split by index, so that a crowd of equal points is ordered by what breaks their ties.
    const std::int64_t middle = begin + (end - begin) / 2;
    std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end,
                     [&](std::int32_t a, std::int32_t b) {
                       const float x = points_.point(a)[widest], y = points_.point(b)[widest];
                       return x != y ? x < y : a < b;
                     });
    build(begin, middle);
    nodes_[id].right = build(middle, end);
    return id;
  }

  // The same operations in the same order as for a point: rounding is monotone, so this never exceeds the
  // distance to a point inside the box.
  double box_distance(std::int64_t node, const float* query) const {
    const float *low = box_.data() + 2 * node * points_.dimension, *high = low + points_.dimension;
    double sum = 0;
    for (std::int64_t d = 0; d < points_.dimension; ++d) {
      const double q = query[d];
      const double outside = q < low[d] ? low[d] - q : q > high[d] ? q - high[d] : 0;
      sum += outside * outside;
    }
    return sum;
  }

  void visit(std::int64_t id, double distance, std::int32_t query, std::size_t k,
             std::vector<Neighbour>& found) const {
    const Node& node = nodes_[id];
    // A box at exactly the distance of the k-th can still hold a smaller index.
    if (found.size() == k && !(Neighbour{distance, node.min_index} < found.front())) return;
    if (node.right == 0) return scan_leaf(node, query, k, found);
    const float* q = points_.point(query);
    Neighbour near = {box_distance(id + 1, q), nodes_[id + 1].min_index};
    Neighbour far = {box_distance(node.right, q), nodes_[node.right].min_index};
    std::int64_t first = id + 1, second = node.right;
    if (far < near) {
      std::swap(near, far);
      std::swap(first, second);
    }
    visit(first, near.squared_distance, query, k, found);
    visit(second, far.squared_distance, query, k, found);
  }

  void scan_leaf(const Node& node, std::int32_t query, std::size_t k, std::vector<Neighbour>& found) const {
    const float* q = points_.point(query);
    for (std::int64_t i = node.begin; i < node.end; ++i) {
      if (order_[i] == query) continue;
      const float* p = sorted_.data() + i * points_.dimension;
      double sum = 0;
      for (std::int64_t d = 0; d < points_.dimension; ++d) {
        const double difference = static_cast<double>(q[d]) - p[d];
        sum += difference * difference;
      }
      const Neighbour candidate = {sum, order_[i]};
      if (found.size() == k) {
        if (!(candidate < found.front())) continue;
        std::pop_heap(found.begin(), found.end());
        found.pop_back();
      }
      found.push_back(candidate);
      std::push_heap(found.begin(), found.end());
    }
  }

  PointSet points_;
  std::vector<std::int32_t> order_;
  std::vector<float> sorted_;  // coordinates in tree order
  std::vector<Node> nodes_;
  std::vector<float> box_;  // [nodes, 2, dimension]: low, high
};

}  // namespace

void nearest_by_tree(const PointSet& points, std::int64_t k, std::span<const std::int32_t> queries,
                     std::int32_t* out) {
  const KdTree tree(points);
  parallel_for(static_cast<std::int64_t>(queries.size()), 256, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Neighbour> found;
    for (std::int64_t i = begin; i < end; ++i) {
      tree.nearest(queries[i], k, found);
      write_nearest(found, k, out + queries[i] * k);
    }
  });
}

}  // namespace topomask
