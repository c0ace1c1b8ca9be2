#include "topomask/graph_builders.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/parallel.h"
#include "topomask/error.h"

namespace topomask {
namespace {

// Simple, undirected, symmetric, ascending, all weights 1.
void expect_simple(const Graph& graph) {
  EXPECT_FALSE(graph.directed);
  EXPECT_TRUE(graph.is_symmetric());
  const CsrView rows = graph.view();
  for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
    for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e) {
      ASSERT_NE(rows.col[e], i);
      ASSERT_EQ(rows.weight[e], 1.0f);
      ASSERT_TRUE(e == rows.row_ptr[i] || rows.col[e - 1] < rows.col[e]);
    }
  }
}

std::int64_t edges(const Graph& graph) {
  return summarise(graph).edges;
}

TEST(Builders, PathsAndCycles) {
  const std::int64_t path_edges[] = {0, 0, 1, 2, 3}, cycle_edges[] = {0, 0, 1, 3, 4};
  for (std::int64_t n = 0; n < 5; ++n) {
    expect_simple(path_graph(n));
    expect_simple(cycle_graph(n));
    EXPECT_EQ(path_graph(n).num_nodes(), n);
    EXPECT_EQ(edges(path_graph(n)), path_edges[n]);
    EXPECT_EQ(edges(cycle_graph(n)), cycle_edges[n]);
  }
  EXPECT_THROW(path_graph(-1), Error);
}

// The definition: cells whose coordinates differ by at most one step each, and in exactly one coordinate
// unless diagonals count.
TEST(Builders, GridsMatchTheirDefinition) {
  for (const auto& extent : std::vector<std::vector<std::int64_t>>{
           {7}, {3, 4}, {2, 5}, {1, 6}, {2, 2, 2}, {3, 1, 4}, {3, 4, 5}, {1, 1, 1}, {0, 3}}) {
    for (const bool diagonals : {false, true}) {
      for (const bool wrap : {false, true}) {
        const Graph graph = grid_graph(extent, {.diagonals = diagonals, .wrap = wrap});
        expect_simple(graph);
        std::int64_t num_nodes = 1;
        for (const std::int64_t size : extent) num_nodes *= size;
        ASSERT_EQ(graph.num_nodes(), num_nodes);
        const at::Tensor dense = graph.to_dense();
        for (std::int64_t i = 0; i < num_nodes; ++i) {
          for (std::int64_t j = 0; j < num_nodes; ++j) {
            std::int64_t a = i, b = j, moved = 0;
            bool near = true;
            for (auto size = extent.rbegin(); size != extent.rend(); a /= *size, b /= *size, ++size) {
              std::int64_t step = std::abs(a % *size - b % *size);
              if (wrap) step = std::min(step, *size - step);
              near = near && step <= 1;
              moved += step;
              if (size + 1 == extent.rend()) break;
            }
            const bool joined = near && moved > 0 && (diagonals || moved == 1);
            ASSERT_EQ(dense[i][j].item<double>(), joined ? 1 : 0) << i << " " << j;
          }
        }
      }
    }
  }
  EXPECT_THROW(grid_graph({1, 2, 3, 4}), Error);
  EXPECT_THROW(grid_graph({100000, 100000}), Error);
}

TEST(Builders, HypercubesAndTrees) {
  for (int d = 0; d < 6; ++d) {
    expect_simple(hypercube_graph(d));
    EXPECT_EQ(edges(hypercube_graph(d)), (std::int64_t{1} << d) * d / 2);
  }

  for (int branching = 1; branching < 4; ++branching) {
    const Graph tree = complete_tree(4, branching);
    expect_simple(tree);
    EXPECT_EQ(edges(tree), tree.num_nodes() - 1);
    EXPECT_EQ(summarise(tree).components, 1);
  }
  EXPECT_EQ(complete_tree(0).num_nodes(), 1);
  EXPECT_EQ(complete_tree(10).num_nodes(), 2047);
  EXPECT_THROW(complete_tree(40), Error);
  EXPECT_THROW(hypercube_graph(31), Error);
}

TEST(Builders, ErdosRenyiEdgeCount) {
  EXPECT_EQ(edges(erdos_renyi(50, 0)), 0);
  EXPECT_EQ(edges(erdos_renyi(50, 1)), 50 * 49 / 2);
  EXPECT_EQ(erdos_renyi(0, 0.5).num_nodes(), 0);
  EXPECT_EQ(erdos_renyi(1, 0.5).num_entries(), 0);
  const double pairs = 3000.0 * 2999 / 2;
  for (const double p : {0.001, 0.2}) {
    const Graph graph = erdos_renyi(3000, p, 5);
    expect_simple(graph);
    EXPECT_NEAR(static_cast<double>(edges(graph)), pairs * p, 4 * std::sqrt(pairs * p * (1 - p)));
  }
  EXPECT_TRUE(erdos_renyi(200, 0.1, 7).col.equal(erdos_renyi(200, 0.1, 7).col));
  EXPECT_FALSE(erdos_renyi(200, 0.1, 7).col.equal(erdos_renyi(200, 0.1, 8).col));
  EXPECT_THROW(erdos_renyi(10, 1.5), Error);
  EXPECT_THROW(erdos_renyi(2000000000, 1), Error);
}

// Each pair of a small graph must be present with probability p.
TEST(Builders, ErdosRenyiTreatsAllPairsAlike) {
  constexpr int kTrials = 4000;
  constexpr double kP = 0.3;
  std::map<std::pair<int, int>, int> present;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Graph graph = erdos_renyi(5, kP, static_cast<std::uint64_t>(trial));
    const CsrView rows = graph.view();
    for (int i = 0; i < 5; ++i) {
      for (std::int64_t e = rows.row_ptr[i]; e < rows.row_ptr[i + 1]; ++e) ++present[{i, rows.col[e]}];
    }
  }
  EXPECT_EQ(present.size(), 20u);
  for (const auto& [pair, count] : present)
    EXPECT_NEAR(count, kTrials * kP, 4 * std::sqrt(kTrials * kP * (1 - kP)));
}

TEST(Builders, BarabasiAlbert) {
  for (const std::int64_t m : {1, 3, 10}) {
    const Graph graph = barabasi_albert(1000, m, 2);
    expect_simple(graph);
    EXPECT_EQ(edges(graph), m * (1000 - m));
    EXPECT_EQ(summarise(graph).components, 1);
    EXPECT_GT(summarise(graph).degree_max, 4 * 2 * m);  // hubs: far above the mean degree
  }
  EXPECT_EQ(edges(barabasi_albert(5, 4)), 4);
  EXPECT_THROW(barabasi_albert(5, 5), Error);
  EXPECT_THROW(barabasi_albert(5, 0), Error);
}

TEST(Builders, RandomRegularIsSimpleAndRegularForEverySize) {
  for (std::int64_t n = 0; n <= 12; ++n) {
    for (std::int64_t d = 0; d < std::max<std::int64_t>(n, 1); ++d) {
      if (n * d % 2 == 1) {
        EXPECT_THROW(random_regular(n, d), Error);
        continue;
      }
      for (std::uint64_t seed = 0; seed < 5; ++seed) {
        const Graph graph = random_regular(n, d, seed);
        expect_simple(graph);
        ASSERT_EQ(graph.num_nodes(), n);
        for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(graph.view().degree(i), d);
      }
    }
  }
  const Graph large = random_regular(20000, 8, 3);
  expect_simple(large);
  EXPECT_EQ(summarise(large).degree_min, 8);
  EXPECT_EQ(summarise(large).degree_max, 8);
  EXPECT_THROW(random_regular(4, 4), Error);
}

TEST(Builders, KarateClub) {
  const Graph graph = karate_club();
  expect_simple(graph);
  EXPECT_EQ(graph.num_nodes(), 34);
  EXPECT_EQ(edges(graph), 78);
  std::vector<std::int64_t> degree;
  for (std::int64_t i = 0; i < 34; ++i) degree.push_back(graph.view().degree(i));
  EXPECT_EQ(degree[0], 16);
  EXPECT_EQ(degree[32], 12);
  EXPECT_EQ(degree[33], 17);
  EXPECT_EQ(degree[11], 1);
  // Known: 45 triangles.
  const at::Tensor a = graph.to_dense();
  EXPECT_EQ(a.matmul(a).matmul(a).trace().item<double>() / 6, 45);
}

TEST(Builders, KnnGraph) {
  const at::Tensor points = at::rand({300, 3});
  const Graph directed = knn_graph(points, {.k = 4});
  EXPECT_TRUE(directed.directed);
  EXPECT_EQ(summarise(directed).degree_min, 4);
  EXPECT_EQ(summarise(directed).degree_max, 4);
  const Graph both = knn_graph(points, {.k = 4, .symmetric = true});
  expect_simple(both);
  const at::Tensor a = directed.to_dense();
  EXPECT_TRUE(both.to_dense().equal((a + a.t()).ne(0).to(at::kDouble)));
  const at::Tensor indices = knn_indices(points, 4);
  EXPECT_EQ(indices.sizes(), (std::vector<std::int64_t>{300, 4}));
  EXPECT_THROW(knn_graph(points, {.k = 300}), Error);
  EXPECT_THROW(knn_graph(points[0], {.k = 1}), Error);
}

TEST(Builders, KnowTheDegreeOfNeighbours) {
  const at::Tensor points = at::rand({30, 2});
  const Graph graph = knn_graph(points, {.k = 4});
  EXPECT_EQ(graph.out_degree, 4);
  EXPECT_EQ(normalise(graph, Normalisation::symmetric).out_degree, 4);
  EXPECT_EQ(graph.permuted(at::arange(30).flip(0)).out_degree, 4);
  EXPECT_EQ(graph.to(at::kCPU).out_degree, 4);
  EXPECT_EQ(graph.transposed().out_degree, -1);
  EXPECT_EQ(knn_graph(points, {.k = 4, .symmetric = true}).out_degree, -1);
}

TEST(Builders, SameForAnyNumberOfThreads) {
  const int before = num_threads();
  const auto build = [] {
    return std::vector<Graph>{grid_graph({90, 110}, {.diagonals = true, .wrap = true}),
                              random_regular(30000, 4, 1), hypercube_graph(14), barabasi_albert(5000, 3, 1)};
  };
  set_num_threads(1);
  const auto one = build();
  set_num_threads(2);
  const auto two = build();
  set_num_threads(before);
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(one[i].row_ptr.equal(two[i].row_ptr));
    EXPECT_TRUE(one[i].col.equal(two[i].col));
  }
}

}  // namespace
}  // namespace topomask
