// Nearest neighbours as operators, where the points are.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <algorithm>

#include "ops/arguments.h"
#include "topomask/graph_builders.h"
#include "topomask/neighbours.h"

namespace topomask::ops {
namespace {

// [D] of a periodic box, which may be one number for all dimensions.
at::Tensor box_of(const std::optional<at::Tensor>& box, const at::Tensor& points) {
  if (!box || box->dim() != 0 || points.dim() != 2) return box.value_or(at::Tensor());
  return box->expand({points.size(1)}).contiguous();
}

NeighbourOptions options_of(const at::Tensor& points, const std::optional<at::Tensor>& queries,
                            const std::optional<at::Tensor>& ptr, const std::optional<at::Tensor>& query_ptr,
                            const std::optional<at::Tensor>& box, std::optional<bool> include_self) {
  NeighbourOptions options;
  options.queries = queries.value_or(at::Tensor());
  options.ptr = ptr.value_or(at::Tensor());
  options.query_ptr = query_ptr.value_or(at::Tensor());
  options.box = box_of(box, points);
  options.include_self = include_self;
  return options;
}

using Lists = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Lists tensors_of(const Neighbours& found) {
  return {found.index, found.distance2, found.count};
}

Lists knn_op(const at::Tensor& points, std::int64_t k, const std::optional<at::Tensor>& queries,
             const std::optional<at::Tensor>& ptr, const std::optional<at::Tensor>& query_ptr,
             const std::optional<at::Tensor>& box, std::optional<bool> include_self) {
  check_place("knn", "points", points);
  return tensors_of(knn(points, k, options_of(points, queries, ptr, query_ptr, box, include_self)));
}

at::Tensor knn_edges_op(const at::Tensor& points, std::int64_t k, const std::optional<at::Tensor>& queries,
                        const std::optional<at::Tensor>& ptr, const std::optional<at::Tensor>& query_ptr,
                        const std::optional<at::Tensor>& box, std::optional<bool> include_self) {
  check_place("knn", "points", points);
  return edge_index_of(knn(points, k, options_of(points, queries, ptr, query_ptr, box, include_self)));
}

Lists radius_op(const at::Tensor& points, double r, std::optional<std::int64_t> max_neighbours,
                const std::optional<at::Tensor>& queries, const std::optional<at::Tensor>& ptr,
                const std::optional<at::Tensor>& query_ptr, const std::optional<at::Tensor>& box,
                std::optional<bool> include_self) {
  check_place("radius", "points", points);
  check(max_neighbours.has_value(),
        "radius: max_neighbours must be given, or edge_index=True for all of them");
  return tensors_of(radius_lists(points, r, *max_neighbours,
                                 options_of(points, queries, ptr, query_ptr, box, include_self)));
}

at::Tensor radius_edges_op(const at::Tensor& points, double r, std::optional<std::int64_t> max_neighbours,
                           const std::optional<at::Tensor>& queries, const std::optional<at::Tensor>& ptr,
                           const std::optional<at::Tensor>& query_ptr, const std::optional<at::Tensor>& box,
                           std::optional<bool> include_self) {
  check_place("radius", "points", points);
  const NeighbourOptions options = options_of(points, queries, ptr, query_ptr, box, include_self);
  return max_neighbours ? edge_index_of(radius_lists(points, r, *max_neighbours, options))
                        : edge_index_of(radius(points, r, options));
}

// The graph of the nearest neighbours, whether it is directed, and the entries of each row where they are
// alike.
std::tuple<at::Tensor, at::Tensor, at::Tensor, bool, std::int64_t> knn_graph_op(
    const at::Tensor& points, std::optional<std::int64_t> k, std::optional<bool> symmetric,
    const std::optional<at::Tensor>& ptr, const std::optional<at::Tensor>& box) {
  check_place("Graph", "points", points);
  KnnOptions options;
  options.k = k.value_or(options.k);
  options.symmetric = symmetric.value_or(options.symmetric);
  options.ptr = ptr.value_or(at::Tensor());
  options.box = box_of(box, points);
  const Graph graph = knn_graph(points.detach(), options);
  return {graph.row_ptr, graph.col, graph.weight, graph.directed, graph.out_degree};
}

// There are as many graphs as the points or the queries say, whichever are more.
at::Tensor batch_ptrs(const std::optional<at::Tensor>& batch, const std::optional<at::Tensor>& query_batch,
                      bool has_queries) {
  check(batch && has_queries == query_batch.has_value(), "with queries, give both batch and query_batch");
  std::vector<at::Tensor> both = {*batch};
  if (query_batch) both.push_back(*query_batch);
  std::int64_t graphs = 0;
  for (const at::Tensor& own : both) {
    if (own.numel() > 0) graphs = std::max(graphs, own.flatten()[-1].item<std::int64_t>() + 1);
  }
  for (at::Tensor& own : both) own = ptr_of_batch(own, graphs);
  return at::stack(both);
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("knn", knn_op);
  m.impl("knn_edges", knn_edges_op);
  m.impl("radius", radius_op);
  m.impl("radius_edges", radius_edges_op);
  m.impl("knn_graph", knn_graph_op);
  m.impl("batch_ptrs", batch_ptrs);
}

}  // namespace topomask::ops
