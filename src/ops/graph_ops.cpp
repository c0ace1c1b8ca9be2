#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "core/numbers.h"
#include "core/tensors.h"
#include "graph/cpu/limits.h"
#include "ops/arguments.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_spec.h"
#include "topomask/neighbours.h"
#include "topomask/partition.h"

namespace topomask::ops {
namespace {

using DirectedGraphTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

DirectedGraphTensors with_direction(const Graph& graph) {
  return {graph.row_ptr, graph.col, graph.weight, at::scalar_tensor(graph.directed, at::kBool)};
}

std::vector<std::int32_t> node_list(const at::Tensor& nodes, std::int64_t num_nodes) {
  const at::Tensor wide = nodes.to(at::kCPU, at::kLong).contiguous();
  const std::int64_t* node = wide.const_data_ptr<std::int64_t>();
  std::vector<std::int32_t> list(static_cast<std::size_t>(wide.numel()));
  for (std::int64_t e = 0; e < wide.numel(); ++e) {
    check(node[e] >= 0 && node[e] < num_nodes,
          "Graph: edge_index must hold nodes from 0 to {}, got {} at edge {}", num_nodes - 1, node[e], e);
    list[e] = static_cast<std::int32_t>(node[e]);
  }
  return list;
}

// Where the graphs of a batch begin, from `ptr` or from the graph of every node; [0] where there is no batch.
at::Tensor batch_ptr(const std::optional<at::Tensor>& batch, const std::optional<at::Tensor>& ptr,
                     const Graph& graph) {
  const std::int64_t num_nodes = graph.num_nodes();
  if (!batch && !ptr) return at::empty({0}, at::kLong);
  at::Tensor begin;
  if (ptr) {
    begin = ptr->detach().to(at::kCPU, at::kLong, /*non_blocking=*/false, /*copy=*/true).contiguous();
  } else {
    const at::Tensor graph_of = batch->detach().cpu();
    check(graph_of.dim() == 1 && graph_of.size(0) == num_nodes && graph_of.diff().ge(0).all().item<bool>(),
          "Graph: batch must be ascending [{}] like the nodes, got {}", num_nodes, describe(*batch));
    begin = ptr_of_batch(graph_of, num_nodes == 0 ? 0 : graph_of[-1].item<std::int64_t>() + 1);
  }
  const std::int64_t* first = begin.const_data_ptr<std::int64_t>();
  const std::int64_t graphs = begin.numel() - 1;
  check(begin.dim() == 1 && graphs >= 0 && first[0] == 0 && first[graphs] == num_nodes &&
            std::is_sorted(first, first + begin.numel()),
        "Graph: ptr must ascend from 0 to the {} nodes, got {}", num_nodes,
        fmt::join(first, first + begin.numel(), ", "));
  const CsrView rows = graph.view();
  for (std::int64_t g = 0; g < graphs; ++g) {
    for (std::int64_t i = first[g]; i < first[g + 1]; ++i) {
      for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e)
        check(rows.col[e] >= first[g] && rows.col[e] < first[g + 1],
              "Graph: edge ({}, {}) joins two graphs of the batch, expected none to", i, rows.col[e]);
    }
  }
  return begin;
}

// As many as the batch has; otherwise one more than the largest node.
std::int64_t count_nodes(const at::Tensor& edge_index, const std::optional<at::Tensor>& batch,
                         const std::optional<at::Tensor>& ptr) {
  if (batch) return batch->numel();
  if (ptr) return ptr->numel() == 0 ? 0 : ptr->flatten()[-1].item<std::int64_t>();
  return edge_index.numel() == 0 ? 0 : edge_index.max().item<std::int64_t>() + 1;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> graph_from_edges(
    const at::Tensor& edge_index, const std::optional<at::Tensor>& edge_weight,
    std::optional<std::int64_t> nodes, bool undirected, std::string_view duplicates,
    std::string_view self_loops, const std::optional<at::Tensor>& batch,
    const std::optional<at::Tensor>& ptr) {
  check(edge_index.dim() == 2 && edge_index.size(0) == 2 && is_index(edge_index),
        "Graph: edge_index must be [2, E] of int32 or int64, got {}", describe(edge_index));
  const std::int64_t num_nodes = nodes ? *nodes : count_nodes(edge_index, batch, ptr);
  check_num_nodes("Graph", num_nodes);
  check_num_entries("Graph", 2.0 * static_cast<double>(edge_index.size(1)));
  EdgeList edges;
  edges.num_nodes = num_nodes;
  edges.directed = !undirected;
  edges.source = node_list(edge_index.select(0, 0), num_nodes);
  edges.target = node_list(edge_index.select(0, 1), num_nodes);
  if (edge_weight.has_value()) {
    check(edge_weight->dim() == 1 && edge_weight->size(0) == edge_index.size(1) && !edge_weight->is_complex(),
          "Graph: edge_weight must be real [{}] like the edges, got {}", edge_index.size(1),
          describe(*edge_weight));
    const at::Tensor weight = edge_weight->detach().to(at::kCPU, at::kFloat).contiguous();
    const float* value = weight.const_data_ptr<float>();
    for (std::int64_t e = 0; e < weight.numel(); ++e) {
      check(std::isfinite(value[e]), "Graph: edge_weight {} is {}, expected a finite number", e, value[e]);
    }
    edges.weight.assign(value, value + weight.numel());
  }
  GraphPolicy policy;
  policy.duplicates = parse_word<Duplicates>("duplicates", duplicates);
  policy.self_loops = parse_word<SelfLoops>("self_loops", self_loops);
  const Graph graph = Graph::from_edges(edges, policy);
  const at::Tensor begin = batch_ptr(batch, ptr, graph).to(edge_index.device());
  // Frameworks list an undirected edge in both directions: what equals its transpose is undirected.
  const at::Tensor directed = at::scalar_tensor(graph.directed && !graph.is_symmetric(), at::kBool);
  const Graph moved = graph.to(edge_index.device());
  return {moved.row_ptr, moved.col, moved.weight, directed, begin};
}

DirectedGraphTensors graph_from_csr(const at::Tensor& row_ptr, const at::Tensor& col,
                                    const std::optional<at::Tensor>& weight) {
  return with_direction(Graph::from_csr_tensors(row_ptr, col, weight.value_or(at::Tensor())));
}

DirectedGraphTensors graph_from_dense(const at::Tensor& adjacency) {
  return with_direction(Graph::from_dense(adjacency));
}

// The options of the command line by their names. After the tensors: what the file calls the nodes, and
// warnings.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, std::vector<std::string>, std::vector<std::string>>
load_graph_tensors(std::string_view spec, const c10::List<std::string>& option_names,
                   const c10::List<std::string>& option_words) {
  LoadOptions options;
  GraphPolicy& policy = options.policy;
  check(option_names.size() == option_words.size(), "Graph: expected a word for each of {} options, got {}",
        option_names.size(), option_words.size());
  for (std::size_t i = 0; i < option_names.size(); ++i) {
    const std::string name = option_names.get(i), word = option_words.get(i);
    if (name == "duplicates") {
      policy.duplicates = parse_word<Duplicates>(name, word);
    } else if (name == "self_loops") {
      policy.self_loops = parse_word<SelfLoops>(name, word);
    } else if (name == "isolated") {
      policy.isolated = parse_word<Isolated>(name, word);
    } else if (name == "components") {
      policy.components = parse_word<Components>(name, word);
    } else if (name == "direction") {
      policy.direction = parse_word<Direction>(name, word);
    } else if (name == "max_file_size") {
      options.read.max_file_size = parse_seed(word, name);
    } else {
      fail_unknown_word("option of Graph.load", name,
                        {"duplicates", "self_loops", "isolated", "components", "direction", "max_file_size"});
    }
  }
  LoadedGraph loaded = load_graph(std::string(spec), options);
  return {loaded.graph.row_ptr,    loaded.graph.col,
          loaded.graph.weight,     at::scalar_tensor(loaded.graph.directed, at::kBool),
          std::move(loaded.names), std::move(loaded.warnings)};
}

GraphTensors grid(at::IntArrayRef extent, bool diagonals, bool wrap) {
  return tensors_of(grid_graph(extent.vec(), {.diagonals = diagonals, .wrap = wrap}));
}

at::Tensor normalised_weight(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight,
                             bool directed, std::string_view how) {
  const Normalisation normalisation = parse_word<Normalisation>("normalise", how);
  const Graph graph = graph_from(row_ptr, col, weight, directed);
  return normalisation == Normalisation::none ? weight.clone() : normalise(graph, normalisation).weight;
}

GraphTensors transpose_graph(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight) {
  return tensors_of(graph_from(row_ptr, col, weight, true).transposed());
}

at::Tensor is_symmetric(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight) {
  return at::scalar_tensor(graph_from(row_ptr, col, weight, true).is_symmetric(), at::kBool);
}

// The disjoint union as row_ptr, col and weight, and where each graph begins, [graphs+1].
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> union_graphs(at::TensorList row_ptr,
                                                                        at::TensorList col,
                                                                        at::TensorList weight) {
  check(row_ptr.size() == col.size() && col.size() == weight.size(),
        "union: expected row_ptr, col and weight of every graph, got {}, {} and {}", row_ptr.size(),
        col.size(), weight.size());
  const at::TensorOptions place(row_ptr.empty() ? at::Device(at::kCPU) : row_ptr[0].device());
  std::vector<at::Tensor> ends = {at::zeros({1}, place.dtype(at::kLong))};
  std::vector<at::Tensor> columns = {at::empty({0}, place.dtype(at::kInt))};
  std::vector<at::Tensor> weights = {at::empty({0}, place.dtype(at::kFloat))};
  std::vector<std::int64_t> starts = {0};
  std::int64_t entries = 0;
  for (std::size_t i = 0; i < row_ptr.size(); ++i) {
    check_same_place("union", "every graph", row_ptr[i], "the first", row_ptr[0]);
    ends.push_back(row_ptr[i].slice(0, 1) + entries);
    columns.push_back(col[i] + starts.back());
    weights.push_back(weight[i]);
    entries += col[i].size(0);
    starts.push_back(starts.back() + row_ptr[i].size(0) - 1);
    check_num_nodes("union", starts.back());
  }
  return {at::cat(ends), at::cat(columns), at::cat(weights), at::tensor(starts, place.dtype(at::kLong))};
}

// [N] int32: the part of every node.
at::Tensor partition_tensor(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight,
                            bool directed, std::int64_t parts, std::string_view method, std::int64_t seed,
                            const std::optional<at::Tensor>& points) {
  PartitionOptions options;
  options.parts = parts;
  options.method = parse_word<PartitionMethod>("method", method);
  options.seed = static_cast<std::uint64_t>(seed);
  if (points) options.points = *points;
  return partition_graph(graph_from(row_ptr, col, weight, directed), options).assignment;
}

// Nodes as people give them: [n] or [n, 1] whole numbers, or a boolean [N].
at::Tensor checked_nodes(const at::Tensor& nodes, std::int64_t num_nodes) {
  if (nodes.scalar_type() == at::kBool) {
    check(nodes.dim() == 1 && nodes.size(0) == num_nodes,
          "NodeKernel: a boolean mask of nodes must be [{}], got [{}]", num_nodes,
          fmt::join(nodes.sizes(), ", "));
    return nodes.nonzero().select(1, 0).contiguous();
  }
  const at::Tensor list = nodes.dim() == 2 && nodes.size(1) == 1 ? nodes.select(1, 0) : nodes;
  check(list.dim() == 1 && at::isIntegralType(list.scalar_type(), /*includeBool=*/false) &&
            list.ge(0).logical_and(list.lt(num_nodes)).all().item<bool>(),
        "NodeKernel: nodes must be [n] whole numbers from 0 to {}", num_nodes - 1);
  return list.to(at::kCPU, at::kLong, /*non_blocking=*/false, /*copy=*/true).contiguous();
}

// ---- shapes for tracing ----

at::Tensor normalised_weight_shape(const at::Tensor&, const at::Tensor&, const at::Tensor& weight, bool,
                                   std::string_view) {
  return at::empty_like(weight);
}

GraphTensors transpose_graph_shapes(const at::Tensor& row_ptr, const at::Tensor& col,
                                    const at::Tensor& weight) {
  return {at::empty_like(row_ptr), at::empty_like(col), at::empty_like(weight)};
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, Meta, m) {
  m.impl("normalise", normalised_weight_shape);
  m.impl("transpose_graph", transpose_graph_shapes);
}

// Made of operators that can be traced.
TORCH_LIBRARY_IMPL(topomask, CompositeImplicitAutograd, m) {
  m.impl("union_graphs", union_graphs);
}

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("graph_from_edges", graph_from_edges);
  m.impl("graph_from_csr", graph_from_csr);
  m.impl("graph_from_dense", graph_from_dense);
  m.impl("normalise", normalised_weight);
  m.impl("transpose_graph", transpose_graph);
  m.impl("is_symmetric", is_symmetric);
  m.impl("checked_nodes", checked_nodes);
  m.impl("load_graph", load_graph_tensors);
  m.impl("partition_graph", partition_tensor);
  m.impl("grid_graph", grid);
}

}  // namespace topomask::ops
