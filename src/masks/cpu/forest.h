// exp(a dist(i, j)) on a forest in two passes, up and down the rooted trees (Choromanski 2022).
#pragma once

#include <cstdint>
#include <vector>

#include "topomask/csr.h"

namespace topomask {

// Nodes in breadth-first order, tree after tree: parents come before their children, and the children of a
// node stand together.
struct RootedForest {
  std::vector<std::int32_t> order;  // [N] position -> node
  std::vector<std::int64_t>
      child_begin;  // [N] positions of a position's children: child_begin to child_end - 1
  std::vector<std::int64_t> child_end;  // [N]
  std::vector<float> length;            // [N] of the edge to the parent; 0 at a root

  std::int64_t num_nodes() const { return static_cast<std::int64_t>(order.size()); }
};

// Throws topomask::Error naming a node or an edge where the undirected graph has a self-loop or a cycle.
RootedForest root_forest(const CsrView& graph, bool weighted);

// y_h = E_h x_h with E_ij = exp(a_h dist(i, j)) within a tree and 0 elsewhere; x, y: [heads, N, columns], a:
// [heads]. Where `derivative` is not null, also derivative_h = (dE_h/da) x_h. No differences are formed, so
// that nothing cancels, whatever the sign of a. The result does not depend on the number of threads.
template <class Real>
void forest_product(const RootedForest& forest, const Real* a, std::int64_t heads, std::int64_t columns,
                    const Real* x, Real* y, Real* derivative);

extern template void forest_product<float>(const RootedForest&, const float*, std::int64_t, std::int64_t,
                                           const float*, float*, float*);
extern template void forest_product<double>(const RootedForest&, const double*, std::int64_t, std::int64_t,
                                            const double*, double*, double*);

}  // namespace topomask
