// k-d tree with tight boxes. Slower than cells on even data, but O(log N) per query on any data.
#include <algorithm>
#include <numeric>

#include "core/parallel.h"
#include "graph/cpu/knn.h"
#include "graph/cpu/knn_rows.h"

namespace topomask {
namespace {

constexpr std::int64_t kLeafSize = 12;

template <class T>
class KdTree {
 public:
  explicit KdTree(const NeighbourSearch<T>& search)
      : search_(search),
        dimension_(search.dimension()),
        order_(static_cast<std::size_t>(search.points.count)) {
    std::iota(order_.begin(), order_.end(), 0);
    const std::int64_t count = search.points.count;
    if (count > 0) build(0, count);
    sorted_.resize(static_cast<std::size_t>(count * dimension_));
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(search.points.point(order_[i]), dimension_, sorted_.begin() + i * dimension_);
    }
  }

  // Leaves the k nearest of a query in `found`, in no particular order.
  void nearest(std::int64_t query, std::int64_t k, std::vector<Neighbour>& found) const {
    found.clear();
    if (nodes_.empty() || k == 0) return;
    const Query q = prepare(query);
    visit(0, box_distance(0, q), q, static_cast<std::size_t>(k), found);
  }

  void within(std::int64_t query, std::vector<Neighbour>& found) const {
    found.clear();
    if (nodes_.empty()) return;
    const Query q = prepare(query);
    std::vector<std::int64_t> open = {0};
    while (!open.empty()) {
      const std::int64_t id = open.back();
      open.pop_back();
      if (box_distance(id, q) > search_.limit) continue;
      const Node& node = nodes_[id];
      if (node.right != 0) {
        open.push_back(node.right);
        open.push_back(id + 1);
        continue;
      }
      for (std::int64_t i = node.begin; i < node.end; ++i) {
        const Neighbour candidate = {distance_to(i, q), order_[i]};
        if (order_[i] != q.own && candidate.squared_distance <= search_.limit) found.push_back(candidate);
      }
    }
  }

 private:
  struct Node {
    std::int64_t begin, end;
    std::int64_t right = 0;  // 0: a leaf. The left child is the next node.
    std::int32_t min_index = 0;
  };
  struct Query {
    const T* at;
    std::int64_t own;  // the point it does not find, or -1
  };

  Query prepare(std::int64_t query) const {
    return {search_.queries.point(query), search_.skip_own ? query : -1};
  }

  double place(std::int32_t point, std::int64_t axis) const {
    return wrapped(static_cast<double>(search_.points.point(point)[axis]), search_.length(axis));
  }

  std::int64_t build(std::int64_t begin, std::int64_t end) {
    const auto id = static_cast<std::int64_t>(nodes_.size());
    nodes_.push_back({begin, end});
    box_.resize(box_.size() + 2 * static_cast<std::size_t>(dimension_));
    nodes_[id].min_index = *std::min_element(order_.begin() + begin, order_.begin() + end);
    std::int64_t widest = 0;
    double width = -1;
    for (std::int64_t d = 0; d < dimension_; ++d) {
      double low = place(order_[begin], d), high = low, largest = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const double x = place(order_[i], d);
        low = std::min(low, x);
        high = std::max(high, x);
        largest = std::max(largest, std::abs(static_cast<double>(search_.points.point(order_[i])[d])));
      }
      if (high - low > width) {
        width = high - low;
        widest = d;
      }
      const double length = search_.length(d), error = length > 0 ? kWrapError * (largest + length) : 0;
      box_[(2 * id) * dimension_ + d] = low - error;
      box_[(2 * id + 1) * dimension_ + d] = high + error;
    }
    if (end - begin <= kLeafSize) return id;
    // Equal coordinates split by index, so that a crowd of equal points is ordered by what breaks their ties.
    const std::int64_t middle = begin + (end - begin) / 2;
    std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end,
                     [&](std::int32_t a, std::int32_t b) {
                       const double x = place(a, widest), y = place(b, widest);
                       return x != y ? x < y : a < b;
                     });
    build(begin, middle);
    nodes_[id].right = build(middle, end);
    return id;
  }

  // The same operations in the same order as for a point: rounding is monotone, so this never exceeds the
  // distance to a point inside the box.
  double box_distance(std::int64_t node, const Query& query) const {
    const double *low = box_.data() + 2 * node * dimension_, *high = low + dimension_;
    double sum = 0;
    for (std::int64_t d = 0; d < dimension_; ++d) {
      const double outside = gap(static_cast<double>(query.at[d]), low[d], high[d], search_.length(d));
      sum += outside * outside;
    }
    return sum;
  }

  static double gap(double x, double low, double high, double length) {
    if (length == 0) return x < low ? low - x : x > high ? x - high : 0;
    const double q = wrapped(x, length);
    const double outside = q < low    ? std::min(low - q, q + length - high)
                           : q > high ? std::min(q - high, low + length - q)
                                      : 0;
    return std::max(outside - kWrapError * (std::abs(x) + length), 0.0);
  }

  double distance_to(std::int64_t position, const Query& query) const {
    return search_.squared_distance(query.at, sorted_.data() + position * dimension_);
  }

  void visit(std::int64_t id, double distance, const Query& query, std::size_t k,
             std::vector<Neighbour>& found) const {
    if (distance > search_.limit) return;
    const Node& node = nodes_[id];
    // A box at exactly the distance of the k-th can still hold a smaller index.
    if (found.size() == k && !(Neighbour{distance, node.min_index} < found.front())) return;
    if (node.right == 0) return scan_leaf(node, query, k, found);
    Neighbour near = {box_distance(id + 1, query), nodes_[id + 1].min_index};
    Neighbour far = {box_distance(node.right, query), nodes_[node.right].min_index};
    std::int64_t first = id + 1, second = node.right;
    if (far < near) {
      std::swap(near, far);
      std::swap(first, second);
    }
    visit(first, near.squared_distance, query, k, found);
    visit(second, far.squared_distance, query, k, found);
  }

  void scan_leaf(const Node& node, const Query& query, std::size_t k, std::vector<Neighbour>& found) const {
    for (std::int64_t i = node.begin; i < node.end; ++i) {
      if (order_[i] == query.own) continue;
      const Neighbour candidate = {distance_to(i, query), order_[i]};
      if (candidate.squared_distance > search_.limit) continue;
      if (found.size() == k) {
        if (!(candidate < found.front())) continue;
        std::pop_heap(found.begin(), found.end());
        found.pop_back();
      }
      found.push_back(candidate);
      std::push_heap(found.begin(), found.end());
    }
  }

  const NeighbourSearch<T>& search_;
  std::int64_t dimension_;
  std::vector<std::int32_t> order_;
  std::vector<T> sorted_;  // coordinates in tree order
  std::vector<Node> nodes_;
  std::vector<double> box_;  // [nodes, 2, dimension]: low, high
};

template <class T>
class TreeFinder : public WithinFinder<T> {
 public:
  explicit TreeFinder(const NeighbourSearch<T>& search) : tree_(search) {}
  void run(std::int64_t begin, std::int64_t end, std::int32_t first_point, RowBlock<T>& out) const override {
    std::vector<Neighbour> found;
    for (std::int64_t query = begin; query < end; ++query) {
      tree_.within(query, found);
      out.add(found, first_point);
    }
  }

 private:
  KdTree<T> tree_;
};

}  // namespace

template <class T>
void nearest_by_tree(const NeighbourSearch<T>& search, const NeighbourLists<T>& out,
                     std::span<const std::int32_t> queries) {
  const KdTree<T> tree(search);
  for_runs(static_cast<std::int64_t>(queries.size()), 256, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Neighbour> found;
    for (std::int64_t i = begin; i < end; ++i) {
      tree.nearest(queries[i], out.k, found);
      out.write(queries[i], found);
    }
  });
}

template <class T>
std::unique_ptr<WithinFinder<T>> within_by_tree(const NeighbourSearch<T>& search) {
  return std::make_unique<TreeFinder<T>>(search);
}

template void nearest_by_tree(const NeighbourSearch<float>&, const NeighbourLists<float>&,
                              std::span<const std::int32_t>);
template void nearest_by_tree(const NeighbourSearch<double>&, const NeighbourLists<double>&,
                              std::span<const std::int32_t>);
template std::unique_ptr<WithinFinder<float>> within_by_tree(const NeighbourSearch<float>&);
template std::unique_ptr<WithinFinder<double>> within_by_tree(const NeighbourSearch<double>&);

}  // namespace topomask
