#include "masks/cpu/forest.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/parallel.h"

namespace topomask {

namespace {

constexpr std::int64_t kColumnsAtOnce = 32;

// Values of a block of columns at every position and, for dual numbers, their derivatives by a.
template <class Real, bool kDual>
class ForestPass {
 public:
  ForestPass(const RootedForest& forest, Real a, std::int64_t width)
      : forest_(forest), width_(width), stride_(kDual ? 2 * width : width), factor_(forest.order.size()) {
    for (std::size_t k = 0; k < factor_.size(); ++k)
      factor_[k] = std::exp(a * static_cast<Real>(forest.length[k]));
    inside_.resize(factor_.size() * stride_);
    outside_.resize(factor_.size() * stride_);
  }

  // x, y, derivative: first column of the block at node 0; nodes are `pitch` apart.
  void run(const Real* x, std::int64_t pitch, Real* y, Real* derivative) {
    const std::int64_t n = forest_.num_nodes();
    // Up: inside = x + what the children's subtrees send over their edges.
    for (std::int64_t k = n - 1; k >= 0; --k) {
      Real* own = at(inside_, k);
      std::copy_n(x + forest_.order[k] * pitch, width_, own);
      if constexpr (kDual) std::fill_n(own + width_, width_, Real{0});
      for (std::int64_t c = forest_.child_begin[k]; c < forest_.child_end[k]; ++c) add_sent(c, own);
    }
    // Down: outside = what reaches a node from beyond its subtree: its parent and its siblings, before and
    // after.
    std::vector<Real> running(stride_);
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t begin = forest_.child_begin[k], end = forest_.child_end[k];
      if (begin == end) continue;
      std::copy_n(at(outside_, k), stride_, running.data());
      const Real* own = x + forest_.order[k] * pitch;
      for (std::int64_t j = 0; j < width_; ++j) running[j] += own[j];
      for (std::int64_t c = begin; c < end; ++c) {
        std::copy_n(running.data(), stride_, at(outside_, c));
        add_sent(c, running.data());
      }
      std::fill(running.begin(), running.end(), Real{0});
      for (std::int64_t c = end - 1; c >= begin; --c) {
        Real* arrived = at(outside_, c);
        for (std::int64_t j = 0; j < stride_; ++j) arrived[j] += running[j];
        cross_edge(c, arrived);
        add_sent(c, running.data());
      }
    }
    for (std::int64_t k = 0; k < n; ++k) {
      const Real* in = at(inside_, k);
      const Real* out = at(outside_, k);
      const std::int64_t row = forest_.order[k] * pitch;
      for (std::int64_t j = 0; j < width_; ++j) y[row + j] = in[j] + out[j];
      if constexpr (kDual)
        for (std::int64_t j = 0; j < width_; ++j) derivative[row + j] = in[width_ + j] + out[width_ + j];
    }
  }

 private:
  Real* at(std::vector<Real>& block, std::int64_t position) { return block.data() + position * stride_; }

  // d/da of exp(a l) v is exp(a l) (v' + l v).
  void cross_edge(std::int64_t child, Real* value) const {
    const Real factor = factor_[child];
    if constexpr (kDual) {
      const Real length = static_cast<Real>(forest_.length[child]);
      for (std::int64_t j = 0; j < width_; ++j)
        value[width_ + j] = factor * (value[width_ + j] + length * value[j]);
    }
    for (std::int64_t j = 0; j < width_; ++j) value[j] *= factor;
  }

  void add_sent(std::int64_t child, Real* sum) {
    const Real factor = factor_[child];
    const Real* value = at(inside_, child);
    for (std::int64_t j = 0; j < width_; ++j) sum[j] += factor * value[j];
    if constexpr (kDual) {
      const Real length = static_cast<Real>(forest_.length[child]);
      for (std::int64_t j = 0; j < width_; ++j)
        sum[width_ + j] += factor * (value[width_ + j] + length * value[j]);
    }
  }

  const RootedForest& forest_;
  std::int64_t width_, stride_;
  std::vector<Real> factor_;            // [N] exp(a length)
  std::vector<Real> inside_, outside_;  // [N, stride]
};

}  // namespace

RootedForest root_forest(const CsrView& graph, bool weighted) {
  const std::int64_t n = graph.num_nodes;
  RootedForest forest;
  forest.order.reserve(n);
  forest.child_begin.resize(n);
  forest.child_end.resize(n);
  forest.length.assign(n, 0.0f);
  std::vector<std::int32_t> parent(n, -1);
  std::vector<bool> seen(n, false);
  std::int64_t done = 0;
  for (std::int64_t root = 0; root < n; ++root) {
    if (seen[root]) continue;
    seen[root] = true;
    forest.order.push_back(static_cast<std::int32_t>(root));
    for (; done < static_cast<std::int64_t>(forest.order.size()); ++done) {
      const std::int32_t node = forest.order[done];
      forest.child_begin[done] = static_cast<std::int64_t>(forest.order.size());
      bool came_back = false;
      for (std::int64_t entry = graph.row_ptr[node]; entry < graph.row_ptr[node + 1]; ++entry) {
        const std::int32_t next = graph.col[entry];
        check(next != node, "ForestMask: graph must be a forest, but node {} has a self-loop", node);
        // The edge to the parent is met once more from this side; a second one is a parallel edge.
        if (next == parent[node] && !came_back) {
          came_back = true;
          continue;
        }
        check(!seen[next], "ForestMask: graph must be a forest, but edge {} - {} closes a cycle", node, next);
        seen[next] = true;
        parent[next] = node;
        forest.length[forest.order.size()] = weighted ? graph.weight[entry] : 1.0f;
        forest.order.push_back(next);
      }
      forest.child_end[done] = static_cast<std::int64_t>(forest.order.size());
    }
  }
  return forest;
}

template <class Real>
void forest_product(const RootedForest& forest, const Real* a, std::int64_t heads, std::int64_t columns,
                    const Real* x, Real* y, Real* derivative) {
  const std::int64_t n = forest.num_nodes();
  // Enough blocks for every thread where the columns allow it.
  const std::int64_t share = (columns * heads + num_threads() - 1) / num_threads();
  const std::int64_t block =
      std::clamp<std::int64_t>(share, 1, std::min(kColumnsAtOnce, std::max<std::int64_t>(columns, 1)));
  const std::int64_t blocks = (columns + block - 1) / block;
  parallel_for(heads * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t head = task / blocks, first = task % blocks * block;
      const std::int64_t width = std::min(block, columns - first);
      const std::int64_t offset = head * n * columns + first;
      if (derivative == nullptr) {
        ForestPass<Real, false>(forest, a[head], width).run(x + offset, columns, y + offset, nullptr);
      } else {
        ForestPass<Real, true>(forest, a[head], width)
            .run(x + offset, columns, y + offset, derivative + offset);
      }
    }
  });
}

template void forest_product<float>(const RootedForest&, const float*, std::int64_t, std::int64_t,
                                    const float*, float*, float*);
template void forest_product<double>(const RootedForest&, const double*, std::int64_t, std::int64_t,
                                     const double*, double*, double*);

}  // namespace topomask
