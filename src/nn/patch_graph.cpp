#include "nn/patch_graph.h"

#include <torch/types.h>

#include "core/random.h"
#include "data/spec.h"
#include "topomask/graph_builders.h"
#include "topomask/nn.h"

namespace topomask {

namespace {

constexpr const char* kForms = "grid, diagonals or knn:K[,jitter=0.5][,seed=0]";
constexpr std::uint32_t kJitterPurpose = 0x6A697474;  // keeps these draws apart from others of a seed

// [N, dimensions] float64: the cells, in row-major order.
at::Tensor cells_of(const std::vector<std::int64_t>& grid) {
  std::vector<at::Tensor> axes;
  for (const std::int64_t extent : grid) axes.push_back(at::arange(extent, at::kDouble));
  std::vector<at::Tensor> coordinates = at::meshgrid(axes, "ij");
  for (at::Tensor& own : coordinates) own = own.flatten();
  return at::stack(coordinates, 1);
}

// Degrees and weights vary from token to token, so importance weights do more than a learnable f can.
Graph jittered_neighbours(const std::vector<std::int64_t>& grid, const PatchGraph& options) {
  at::Tensor points = cells_of(grid);
  RandomStream random(options.seed, kJitterPurpose);
  double* moved = points.data_ptr<double>();
  for (std::int64_t i = 0; i < points.numel(); ++i)
    moved[i] += options.jitter * (2 * random.next_double() - 1);
  Graph graph = knn_graph(points, {.k = options.k, .symmetric = true});
  const at::Tensor row = at::arange(graph.num_nodes()).repeat_interleave(graph.row_ptr.diff());
  const at::Tensor step = points.index_select(0, row) - points.index_select(0, graph.col.to(at::kLong));
  graph.weight = step.square().sum(1).mul(-0.5).exp().to(at::kFloat);
  return graph;
}

}  // namespace

PatchGraph parse_patch_graph(const std::string& description) {
  PatchGraph graph;
  if (description == "grid") return graph;
  graph.kind = description == "diagonals" ? PatchGraph::Kind::diagonals : PatchGraph::Kind::knn;
  if (graph.kind == PatchGraph::Kind::diagonals) return graph;
  check(description.starts_with("knn:"), "--patch-graph: expected {}, got '{}'", kForms, description);
  DataSpec spec(description, kForms, "--patch-graph");
  graph.k = spec.size(1, 1024);
  graph.jitter = spec.number<double>("jitter", 0.5, 0.0, 1e3);
  graph.seed = spec.number<std::uint64_t>("seed", 0, 0, std::numeric_limits<std::uint64_t>::max());
  spec.finish();
  return graph;
}

Graph patch_graph(const std::vector<std::int64_t>& grid, const std::string& description) {
  const PatchGraph options = parse_patch_graph(description);
  const GridOptions cells = {.diagonals = options.kind == PatchGraph::Kind::diagonals};
  const Graph graph =
      options.kind == PatchGraph::Kind::knn ? jittered_neighbours(grid, options) : grid_graph(grid, cells);
  return normalise(graph, Normalisation::symmetric);
}

}  // namespace topomask
