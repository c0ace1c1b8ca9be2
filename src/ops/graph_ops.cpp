#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <cmath>

#include "core/numbers.h"
#include "core/tensors.h"
#include "graph/cpu/limits.h"
#include "ops/arguments.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_spec.h"

namespace topomask::ops {
namespace {

using DirectedGraphTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

DirectedGraphTensors with_direction(const Graph& graph, bool directed) {
  return {graph.row_ptr, graph.col, graph.weight, at::scalar_tensor(directed, at::kBool)};
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

DirectedGraphTensors graph_from_edges(const at::Tensor& edge_index,
                                      const std::optional<at::Tensor>& edge_weight, std::int64_t num_nodes,
                                      bool undirected, std::string_view duplicates,
                                      std::string_view self_loops) {
  check(edge_index.dim() == 2 && edge_index.size(0) == 2 && is_index(edge_index),
        "Graph: edge_index must be [2, E] of int32 or int64, got {}", describe(edge_index));
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
  // Frameworks list an undirected edge in both directions: what equals its transpose is undirected.
  return with_direction(graph, graph.directed && !graph.is_symmetric());
}

DirectedGraphTensors graph_from_csr(const at::Tensor& row_ptr, const at::Tensor& col,
                                    const std::optional<at::Tensor>& weight) {
  const Graph graph = Graph::from_csr_tensors(row_ptr, col, weight.value_or(at::Tensor()));
  return with_direction(graph, graph.directed);
}

DirectedGraphTensors graph_from_dense(const at::Tensor& adjacency) {
  const Graph graph = Graph::from_dense(adjacency);
  return with_direction(graph, graph.directed);
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

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("graph_from_edges", graph_from_edges);
  m.impl("graph_from_csr", graph_from_csr);
  m.impl("graph_from_dense", graph_from_dense);
  m.impl("normalise", normalised_weight);
  m.impl("transpose_graph", transpose_graph);
  m.impl("is_symmetric", is_symmetric);
  m.impl("load_graph", load_graph_tensors);
  m.impl("grid_graph", grid);
}

}  // namespace topomask::ops
