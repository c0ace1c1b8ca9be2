// Partitions: every method is deterministic, balanced and does not cut more than it must.
#include "topomask/partition.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/parallel.h"
#include "graph/cpu/partitions.h"
#include "support/expect_error.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_spec.h"

namespace topomask {
namespace {

using topomask::testing::expect_error;

constexpr PartitionMethod kMethods[] = {PartitionMethod::morton, PartitionMethod::metis,
                                        PartitionMethod::stream};

Partition cut(const Graph& graph, std::int64_t parts, PartitionMethod method, std::uint64_t seed = 0) {
  PartitionOptions options;
  options.parts = parts;
  options.method = method;
  options.seed = seed;
  return partition_graph(graph, options);
}

Partition cut_spec(const std::string& spec, std::int64_t parts, PartitionMethod method) {
  LoadOptions loading;
  loading.points = true;
  const LoadedGraph loaded = load_graph(spec, loading);
  PartitionOptions options;
  options.parts = parts;
  options.method = method;
  options.points = loaded.points;
  return partition_graph(loaded.graph, options);
}

TEST(Partition, SummaryAgainstACountByHand) {
  // 0 - 1 - 2 - 3, a loop at 1; parts {0, 1} and {2, 3}.
  EdgeList edges;
  edges.num_nodes = 4;
  edges.source = {0, 1, 2, 1};
  edges.target = {1, 2, 3, 1};
  const Graph graph = Graph::from_edges(edges);
  Partition partition;
  partition.parts = 3;
  partition.assignment = at::tensor({0, 0, 1, 1}, at::kInt);
  const PartitionSummary summary = summarise(graph, partition);
  EXPECT_EQ(summary.nodes, 4);
  EXPECT_EQ(summary.entries, 7);
  EXPECT_EQ(summary.edges, 4);
  EXPECT_EQ(summary.cut_edges, 1);
  EXPECT_DOUBLE_EQ(summary.cut_share, 0.25);
  EXPECT_DOUBLE_EQ(summary.balance, 6 / (11 / 3.0));  // work: 2 nodes + 4 entries of 4 + 7 in 3 parts
  EXPECT_EQ(summary.halo_total, 2);
  EXPECT_EQ(summary.exchange_bytes, 8);
  ASSERT_EQ(summary.parts.size(), 3u);
  EXPECT_EQ(summary.parts[0].halo, 1);
  EXPECT_EQ(summary.parts[0].sends, 1);
  EXPECT_EQ(summary.parts[2].nodes, 0);
}

TEST(Partition, HaloOfADirectedGraphFollowsItsRows) {
  // 0 -> 1: the row of 0 needs 1, that of 1 needs nothing.
  EdgeList edges;
  edges.num_nodes = 2;
  edges.source = {0};
  edges.target = {1};
  edges.directed = true;
  Partition partition;
  partition.parts = 2;
  partition.assignment = at::tensor({0, 1}, at::kInt);
  const PartitionSummary summary = summarise(Graph::from_edges(edges), partition);
  EXPECT_EQ(summary.cut_edges, 1);
  EXPECT_EQ(summary.parts[0].halo, 1);
  EXPECT_EQ(summary.parts[0].sends, 0);
  EXPECT_EQ(summary.parts[1].halo, 0);
  EXPECT_EQ(summary.parts[1].sends, 1);
}

TEST(Partition, MetisCutsAGridAlmostAsWellAsARuler) {
  struct Case {
    std::vector<std::int64_t> extent;
    std::int64_t parts, straight;
  };
  for (const Case& grid : {Case{{64, 64}, 2, 64}, Case{{64, 64}, 4, 128}, Case{{120, 120}, 9, 480},
                           Case{{200, 50}, 4, 150}, Case{{16, 16, 16}, 8, 768}}) {
    const Graph graph = grid_graph(grid.extent);
    const PartitionSummary summary = summarise(graph, cut(graph, grid.parts, PartitionMethod::metis));
    EXPECT_LT(static_cast<double>(summary.cut_edges), 1.5 * static_cast<double>(grid.straight))
        << grid.parts << " parts";
    EXPECT_LE(summary.balance, 1.05) << grid.parts << " parts";
  }
}

TEST(Partition, MortonCutsAGridIntoSquares) {
  const Graph graph = grid_graph({64, 64});
  const PartitionSummary summary = summarise(graph, cut_spec("grid:64x64", 4, PartitionMethod::morton));
  // Work counts entries, of which nodes at the border have fewer: the runs end near the squares' corners.
  EXPECT_LT(summary.cut_edges, 128 + 24);
  EXPECT_LE(summary.balance, 1.01);
}

TEST(Partition, MortonTakesThePointsOfACloud) {
  const Graph graph = load_graph("torus:4000,8").graph;
  const PartitionSummary near = summarise(graph, cut_spec("torus:4000,8", 8, PartitionMethod::morton));
  EXPECT_LT(near.cut_share, 0.25);  // at random it would be 7/8
  EXPECT_LE(near.balance, 1.02);
}

TEST(Partition, StreamKeepsNeighboursTogether) {
  const Graph graph = load_graph("torus:4000,8").graph;
  const PartitionSummary summary = summarise(graph, cut(graph, 8, PartitionMethod::stream));
  EXPECT_LT(summary.cut_share, 0.5);
  EXPECT_LE(summary.balance, 1.05);
}

TEST(Partition, EveryMethodBalancesAHubGraph) {
  const Graph graph = barabasi_albert(5000, 4, 1);
  for (const PartitionMethod method : kMethods) {
    const PartitionSummary summary = summarise(graph, cut(graph, 4, method));
    EXPECT_LE(summary.balance, 1.05) << word_of(method);
    EXPECT_LT(summary.cut_share, 0.75) << word_of(method);
  }
}

TEST(Partition, SameOnAnyNumberOfThreads) {
  const int before = num_threads();
  for (const char* spec : {"torus:3000,6", "ba:2000,3", "er:500,0.01"}) {
    for (const PartitionMethod method : kMethods) {
      set_num_threads(1);
      const at::Tensor one = cut_spec(spec, 5, method).assignment;
      set_num_threads(4);
      EXPECT_TRUE(one.equal(cut_spec(spec, 5, method).assignment)) << spec << " " << word_of(method);
      set_num_threads(before);
    }
  }
}

TEST(Partition, MetisFollowsItsSeed) {
  const Graph graph = barabasi_albert(3000, 3, 0);
  const at::Tensor first = cut(graph, 6, PartitionMethod::metis, 1).assignment;
  EXPECT_TRUE(first.equal(cut(graph, 6, PartitionMethod::metis, 1).assignment));
  EXPECT_FALSE(first.equal(cut(graph, 6, PartitionMethod::metis, 2).assignment));
}

TEST(Partition, FewNodesManyParts) {
  for (const PartitionMethod method : kMethods) {
    for (const char* spec : {"path:1", "path:3", "karate", "er:6,0"}) {
      for (const std::int64_t parts : {1, 2, 7, 40}) {
        const Graph graph = load_graph(spec).graph;
        const Partition partition = cut(graph, parts, method);
        const PartitionSummary summary = summarise(graph, partition);  // checks the range
        EXPECT_EQ(static_cast<std::int64_t>(summary.parts.size()), parts);
        EXPECT_EQ(summary.entries, graph.num_entries());
      }
    }
    EXPECT_EQ(cut(Graph(), 3, method).assignment.numel(), 0);
  }
}

// METIS writes to stdout when it is asked for parts that it cannot fill.
TEST(Partition, MetisKeepsQuiet) {
  EdgeList star;
  star.num_nodes = 400;
  for (std::int32_t leaf = 1; leaf < star.num_nodes; ++leaf) {
    star.source.push_back(0);
    star.target.push_back(leaf);
  }
  std::vector<Graph> graphs = {Graph::from_edges(star), karate_club()};
  for (const char* spec : {"ba:200,1", "ba:200,8", "path:100", "er:100,0", "tree:6", "er:120,0.02"})
    graphs.push_back(load_graph(spec).graph);
  ::testing::internal::CaptureStdout();
  for (const Graph& graph : graphs) {
    for (std::int64_t parts = 2; parts <= graph.num_nodes(); parts += 1 + parts / 4)
      cut(graph, parts, PartitionMethod::metis);
  }
  std::fflush(stdout);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(Partition, RunsOfAnOrderHaveEqualWork) {
  const Graph graph = path_graph(1000);
  std::vector<std::int32_t> order(1000);
  std::iota(order.begin(), order.end(), 0);
  const std::vector<std::int32_t> part = partition_by_order(graph.view(), order, 8);
  EXPECT_TRUE(std::is_sorted(part.begin(), part.end()));
  for (std::int32_t p = 0; p < 8; ++p) EXPECT_EQ(std::count(part.begin(), part.end(), p), 125);
}

TEST(Partition, OneSentencePerMistake) {
  const Graph graph = karate_club();
  expect_error([&] { cut(graph, 0, PartitionMethod::metis); }, "parts must be from 1 to 4096, got 0");
  expect_error([&] { cut(graph, 5000, PartitionMethod::metis); }, "got 5000");
  PartitionOptions options;
  options.imbalance = 0;
  expect_error([&] { partition_graph(graph, options); }, "imbalance must be above 0");
  options = {};
  options.method = PartitionMethod::morton;
  options.points = at::tensor({1.0, 2.0}).view({2, 1});
  expect_error([&] { partition_graph(graph, options); }, "expected points [34, D]");
  Partition wrong;
  wrong.parts = 2;
  wrong.assignment = at::tensor({0, 1}, at::kInt);
  expect_error([&] { summarise(graph, wrong); }, "expected assignment [34]");
  wrong.assignment = cut(graph, 3, PartitionMethod::stream).assignment;
  expect_error([&] { summarise(graph, wrong); }, "expected one from 0 to 1");
  expect_error([&] { parse_word<PartitionMethod>("method", "metric"); }, "did you mean 'metis'?");
}

}  // namespace
}  // namespace topomask
