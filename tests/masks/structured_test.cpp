// Toeplitz masks on grids, affine masks on forests, heat kernels on hypercubes.
#include <bit>

#include "dense_oracles.h"
#include "gradcheck.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"

namespace topomask::oracle {
namespace {

using Extent = std::vector<std::int64_t>;

std::vector<std::int64_t> coordinates(std::int64_t node, const Extent& extent) {
  std::vector<std::int64_t> result(extent.size());
  for (std::size_t a = extent.size(); a-- > 0; node /= extent[a]) result[a] = node % extent[a];
  return result;
}

// b at j - i, straight from the definition in the header.
at::Tensor toeplitz_oracle(const Extent& extent, const at::Tensor& offsets, OffsetTransform transform) {
  std::int64_t n = 1;
  for (const std::int64_t size : extent) n *= size;
  const at::Tensor values = offsets.detach();
  return matrix_of(values.size(0), n, [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    const auto from = coordinates(i, extent), to = coordinates(j, extent);
    std::int64_t index = 0;
    for (std::size_t a = 0; a < extent.size(); ++a)
      index = index * (2 * extent[a] - 1) + (to[a] - from[a] + extent[a] - 1);
    const double b = values[h][index].item<double>();
    if (transform == OffsetTransform::exponential) return std::exp(b);
    return transform == OffsetTransform::absolute ? std::abs(b) : b;
  });
}

std::int64_t num_offsets(const Extent& extent) {
  std::int64_t count = 1;
  for (const std::int64_t size : extent) count *= 2 * size - 1;
  return count;
}

class Toeplitz : public ::testing::TestWithParam<Extent> {};

TEST_P(Toeplitz, MatchesTheDenseMatrix) {
  const Extent extent = GetParam();
  for (const std::int64_t heads : {1, 2}) {
    const at::Tensor offsets = parameter({heads, num_offsets(extent)});
    for (const auto transform :
         {OffsetTransform::none, OffsetTransform::exponential, OffsetTransform::absolute})
      expect_matches(ToeplitzMask(extent, offsets, transform), toeplitz_oracle(extent, offsets, transform));
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, Toeplitz,
                         ::testing::Values(Extent{1}, Extent{2}, Extent{7}, Extent{16}, Extent{3, 5},
                                           Extent{4, 1}, Extent{2, 3, 2}, Extent{1, 4, 3}, Extent{5, 6, 4}));

TEST(ToeplitzMask, Gradients) {
  for (const Extent& extent : {Extent{1}, Extent{7}, Extent{3, 4}, Extent{2, 1}, Extent{2, 3, 2}}) {
    const std::int64_t count = num_offsets(extent);
    check_gradients(ToeplitzMask(extent, parameter({2, count})));
    check_gradients(ToeplitzMask(extent, parameter({1, count}), OffsetTransform::exponential), 2);
    check_gradients(ToeplitzMask(extent, parameter({1, count}), OffsetTransform::absolute));
  }
}

TEST(ToeplitzMask, ManyColumnsInSeveralBatchesAgreeWithOne) {
  // 300 x 300 pads to 600 x 600: about 11 MiB a column in double, so that 12 columns need several batches.
  const Extent extent = {300, 300};
  const at::Tensor offsets = test_values({1, num_offsets(extent)}).requires_grad_();
  const ToeplitzMask mask(extent, offsets);
  const at::Tensor x = test_values({1, 90000, 12}, 3).requires_grad_();
  const at::Tensor y = mask.multiply(x);
  const auto gradients = torch::autograd::grad({y.sum()}, {offsets, x});
  at::Tensor offsets_sum = at::zeros_like(offsets);
  for (std::int64_t c = 0; c < 12; c += 11) {
    const at::Tensor one = x.detach().narrow(2, c, 1).requires_grad_();
    EXPECT_LE(max_difference(mask.multiply(one).detach(), y.detach().narrow(2, c, 1)), 1e-8);
  }
  for (std::int64_t c = 0; c < 12; ++c)
    offsets_sum += torch::autograd::grad({mask.multiply(x.detach().narrow(2, c, 1)).sum()}, {offsets})[0];
  EXPECT_LE(max_difference(offsets_sum, gradients[0]), 1e-7);
}

TEST(ToeplitzMask, KnowsItsGrid) {
  const at::Tensor offsets = test_values({1, 5 * 7});
  check_grid(grid_graph({3, 4}), {3, 4});
  check_grid(grid_graph({3, 4}, {.diagonals = true}), {3, 4});
  expect_error([&] { check_grid(grid_graph({4, 3}), {3, 4}); }, {"graph", "3x4 grid"});
  expect_error([&] { check_grid(grid_graph({3, 3}), {3, 4}); }, {"12 nodes", "9 nodes"});
  expect_error([&] { check_grid(cycle_graph(12), {12}); }, {"12 grid", "24 entries"});
  expect_error([&] { ToeplitzMask({3, 4}, test_values({1, 34})); }, {"offsets", "[H, 35]", "[1, 34]"});
  expect_error([&] { ToeplitzMask({2, 2, 2, 2}, offsets); }, {"extent", "1 to 3", "4"});
  expect_error([&] { ToeplitzMask({3, 0}, offsets); }, {"extent", "at least 1", "[3, 0]"});
  expect_error(
      [&] {
        ToeplitzMask({3, 4}, at::ones({1, 35}, at::kLong));
      },
      {"offsets", "float32 or float64", "Long"});
}

at::Tensor forest_oracle(const Graph& graph, const at::Tensor& a, const at::Tensor& b, bool weighted) {
  const auto length = path_lengths(graph, weighted);
  return matrix_of(a.size(0), graph.num_nodes(), [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    if (std::isinf(length[i][j])) return 0.0;
    return std::exp(a[h].item<double>() * length[i][j] + b[h].item<double>());
  });
}

// Two trees, one of them with a branching node that is not its root, an isolated node, and labels in
// disorder.
Graph two_trees() {
  return graph_of(10, {4, 7, 4, 9, 4, 1, 8}, {7, 0, 9, 3, 6, 5, 5});
}

TEST(Forest, MatchesTheDenseMatrix) {
  for (const Graph& graph : {two_trees(), path_graph(1), path_graph(9), complete_tree(3, 3),
                             graph_of(4, {}, {}), graph_of(6, {3, 3, 3, 3, 3}, {0, 1, 2, 4, 5})}) {
    const at::Tensor a = at::tensor({-0.7, 0.4}, at::kDouble), b = at::tensor({0.2, -0.3}, at::kDouble);
    expect_matches(ForestMask(graph, a, b), forest_oracle(graph, a, b, false));
    expect_matches(ForestMask(graph, a.narrow(0, 0, 1), b.narrow(0, 1, 1)),
                   forest_oracle(graph, a.narrow(0, 0, 1), b.narrow(0, 1, 1), false));
  }
}

TEST(Forest, WeightsAreLengths) {
  Graph graph = two_trees();
  const at::Tensor rows = at::arange(10, at::kLong).repeat_interleave(graph.row_ptr.diff());
  graph = graph.with_weight((0.1 * (rows + graph.col)).to(at::kFloat));
  const at::Tensor a = at::tensor({-0.9}, at::kDouble), b = at::tensor({0.1}, at::kDouble);
  expect_matches(ForestMask(graph, a, b, ForestMask::Length::edge_weight), forest_oracle(graph, a, b, true));
}

TEST(Forest, Gradients) {
  check_gradients(ForestMask(two_trees(), parameter({2}, 1), parameter({2}, 2)));
  check_gradients(ForestMask(complete_tree(2, 2), parameter({1}, 1), parameter({1}, 2)), 2);
  check_gradients(ForestMask(path_graph(1), parameter({1}), parameter({1})));
  const Graph path = path_graph(4);
  check_gradients(ForestMask(path.with_weight(at::tensor({.5f, .5f, 2.f, 2.f, 1.5f, 1.5f})), parameter({1}),
                             parameter({1}), ForestMask::Length::edge_weight));
}

// A recurrence that subtracts a subtree's part from its parent's sum loses every digit here.
TEST(Forest, GrowingMasksLoseNoDigits) {
  const std::int64_t n = 60;
  const double a = 1.5;
  const ForestMask mask(path_graph(n), at::tensor({a}, at::kDouble), at::tensor({0.0}, at::kDouble));
  const at::Tensor y = mask.multiply(at::ones({1, n, 1}, at::kDouble)).view({-1});
  for (std::int64_t i = 0; i < n; ++i) {
    double expected = 0;
    for (std::int64_t j = 0; j < n; ++j) expected += std::exp(a * static_cast<double>(std::abs(i - j)));
    EXPECT_NEAR(y[i].item<double>() / expected, 1, 1e-13);
  }
}

TEST(Forest, RejectsOtherGraphs) {
  const at::Tensor one = at::ones({1}, at::kDouble);
  expect_error([&] { ForestMask(cycle_graph(5), one, one); }, {"ForestMask", "forest", "edge", "cycle"});
  expect_error([&] { ForestMask(graph_of(3, {0, 2}, {1, 2}), one, one); }, {"node 2", "self-loop"});
  expect_error([&] { ForestMask(graph_of(3, {0}, {1}, true), one, one); },
               {"undirected", "directed graph of 3"});
  EdgeList twice;
  twice.num_nodes = 2;
  twice.source = {0, 0};
  twice.target = {1, 1};
  const Graph parallel = Graph::from_edges(twice, {.duplicates = Duplicates::keep});
  expect_error([&] { ForestMask(parallel, one, one); }, {"edge 0 - 1", "cycle"});
  expect_error([&] { ForestMask(path_graph(3), one, at::ones({2}, at::kDouble)); },
               {"b must", "[1], as a", "[2]"});
  expect_error([&] { ForestMask(path_graph(3), at::ones({1}, at::kInt), one); }, {"a must", "Int [1]"});
}

// The matrix exponential of the Laplacian itself.
at::Tensor heat_oracle(int dimension, const at::Tensor& beta, bool normalised) {
  const std::int64_t n = std::int64_t{1} << dimension;
  const at::Tensor laplacian = matrix_of(1, n, [&](std::int64_t, std::int64_t i, std::int64_t j) {
    const int apart = std::popcount(static_cast<std::uint64_t>(i ^ j));
    return apart == 0 ? static_cast<double>(dimension) : apart == 1 ? -1.0 : 0.0;
  });
  const double scale = normalised ? std::max(1, dimension) : 1;
  return at::linalg_matrix_exp(-laplacian * beta.detach().view({-1, 1, 1}) / scale);
}

TEST(HypercubeHeat, MatchesTheMatrixExponential) {
  for (int dimension = 0; dimension <= 4; ++dimension) {
    const at::Tensor beta = at::tensor({0.3, 1e-4, 2.0}, at::kDouble);
    expect_matches(HypercubeHeatMask(dimension, beta), heat_oracle(dimension, beta, false));
    expect_matches(
        HypercubeHeatMask(dimension, beta.narrow(0, 0, 1), HypercubeHeatMask::Laplacian::normalised),
        heat_oracle(dimension, beta.narrow(0, 0, 1), true));
  }
}

TEST(HypercubeHeat, Gradients) {
  for (int dimension = 0; dimension <= 4; ++dimension) {
    check_gradients(HypercubeHeatMask(dimension, parameter({2}, 4)));
    check_gradients(HypercubeHeatMask(dimension, parameter({1}, 4), HypercubeHeatMask::Laplacian::normalised),
                    2);
  }
}

// Beyond what one block of the kernel holds: a delta spreads as the product of the bits' factors.
TEST(HypercubeHeat, ManyBlocks) {
  const int dimension = 14;
  const std::int64_t n = std::int64_t{1} << dimension;
  const double t = 0.2, q = (1 - std::exp(-2 * t)) / 2;
  at::Tensor x = at::zeros({2, n, 8}, at::kDouble);
  x[1].select(0, 5).fill_(1);
  const at::Tensor y = HypercubeHeatMask(dimension, at::tensor({t}, at::kDouble)).multiply(x);
  EXPECT_EQ(y[0].abs().max().item<double>(), 0);
  for (const std::int64_t node : {std::int64_t{0}, std::int64_t{5}, std::int64_t{4}, n / 2, n - 1}) {
    const int apart = std::popcount(static_cast<std::uint64_t>(node ^ 5));
    EXPECT_NEAR(y[1][node][3].item<double>(), std::pow(q, apart) * std::pow(1 - q, dimension - apart), 1e-15);
  }
}

TEST(HypercubeHeat, KnowsItsGraph) {
  const at::Tensor beta = at::ones({1}, at::kDouble);
  EXPECT_EQ(HypercubeHeatMask::for_graph(hypercube_graph(3), beta)->num_nodes(), 8);
  EXPECT_EQ(HypercubeHeatMask::for_graph(hypercube_graph(0), beta)->num_nodes(), 1);
  expect_error([&] { HypercubeHeatMask::for_graph(path_graph(6), beta); }, {"2^d nodes", "6 nodes"});
  expect_error([&] { HypercubeHeatMask::for_graph(path_graph(8), beta); },
               {"dimension 3", "24 entries", "14"});
  expect_error([&] { HypercubeHeatMask::for_graph(random_regular(8, 3, 1), beta); },
               {"dimension 3", "another graph"});
  expect_error([&] { HypercubeHeatMask(31, beta); }, {"dimension", "0 to 30", "31"});
  expect_error([&] { HypercubeHeatMask(2, at::ones({}, at::kDouble)); }, {"beta", "[H]"});
}

}  // namespace
}  // namespace topomask::oracle
