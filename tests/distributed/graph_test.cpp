// Rows, degrees, normalisation and transposes of a distributed graph are those of the whole graph, bit for
// bit, however it was handed to the ranks.
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "distributed/cases.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/distributed.h"

namespace topomask {
namespace {

using topomask::testing::expect_error;
using topomask::testing::TemporaryFolder;

// Every own row against that of the whole graph.
void expect_rows(const Graph& whole, const DistributedGraph& part) {
  const CsrView expected = whole.view(), rows = part.view();
  ASSERT_EQ(part.total_nodes(), expected.num_nodes);
  for (std::int64_t i = 0; i < rows.num_nodes; ++i) {
    const std::int64_t node = part.original()[i];
    ASSERT_EQ(rows.degree(i), expected.degree(node)) << "node " << node;
    for (std::int64_t k = 0; k < rows.degree(i); ++k) {
      EXPECT_EQ(part.original()[rows.col[rows.row_ptr[i] + k]], expected.col[expected.row_ptr[node] + k]);
      EXPECT_EQ(rows.weight[rows.row_ptr[i] + k], expected.weight[expected.row_ptr[node] + k]);
    }
  }
}

TEST(DistributedGraph, holds_the_rows_of_the_whole_graph) {
  testing::on_all([](const testing::GraphCase& one, const Partition& partition, const RanksPtr& ranks) {
    const DistributedGraph graph = DistributedGraph::from_graph(one.graph, partition, ranks);
    expect_rows(one.graph, graph);
    expect_rows(one.graph.transposed(), graph.transposed());
    EXPECT_EQ(graph.is_symmetric(), one.graph.is_symmetric());
    for (const Normalisation how : {Normalisation::none, Normalisation::symmetric, Normalisation::random_walk,
                                    Normalisation::max_degree}) {
      expect_rows(normalise(one.graph, how), graph.normalised(how));
    }
    const at::Tensor numbers = graph.nodes().to(at::kDouble).unsqueeze(1);
    const at::Tensor halo = graph.halo_rows(numbers);
    ASSERT_EQ(halo.size(0), graph.num_halo());
    for (std::int64_t k = 0; k < graph.num_halo(); ++k)
      EXPECT_EQ(halo[k][0].item<double>(), graph.original()[graph.num_own() + k]);
  });
}

TEST(DistributedGraph, comes_from_shards_and_from_edges_of_each_rank) {
  for (const testing::GraphCase& one : testing::graph_cases()) {
    const TemporaryFolder folder;
    const std::string path = folder / "shards";
    const Partition partition = testing::parts_of(one.graph, 3);
    write_shards(path, one.graph, partition);
    Ranks::run_threads(3, [&](const RanksPtr& ranks) {
      const DistributedGraph graph = DistributedGraph::from_shards(path, ranks);
      expect_rows(one.graph, graph);
      // The same rows as a list of edges, backwards.
      std::vector<std::int64_t> ends;
      std::vector<float> weight;
      const CsrView rows = graph.view();
      for (int side = 0; side < 2; ++side) {
        for (std::int64_t i = rows.num_nodes - 1; i >= 0; --i) {
          for (std::int64_t e = rows.row_ptr[i + 1] - 1; e >= rows.row_ptr[i]; --e) {
            ends.push_back(side == 0 ? graph.original()[i] : graph.original()[rows.col[e]]);
            if (side == 0) weight.push_back(rows.weight[e]);
          }
        }
      }
      const auto count = static_cast<std::int64_t>(weight.size());
      const at::Tensor edges = at::tensor(ends, at::kLong).view({2, count});
      expect_rows(one.graph,
                  DistributedGraph::from_edges(graph.total_nodes(), graph.nodes(), edges,
                                               at::tensor(weight, at::kFloat), graph.directed(), ranks));
    });
  }
}

TEST(DistributedGraph, says_what_does_not_fit_on_every_rank) {
  const Graph grid = grid_graph({4, 4}), path = path_graph(16);
  const TemporaryFolder folder;
  const std::string two = folder / "two", other = folder / "other";
  write_shards(two, grid, testing::parts_of(grid, 2));
  write_shards(other, path, testing::parts_of(path, 2));
  const auto on_two = [](const std::function<void(const RanksPtr&)>& each) { Ranks::run_threads(2, each); };

  Ranks::run_threads(3, [&](const RanksPtr& ranks) {
    expect_error([&] { DistributedGraph::from_shards(two, ranks); }, "has 2 shards, but there are 3 ranks");
  });
  on_two([&](const RanksPtr& ranks) {
    expect_error([&] { DistributedGraph::from_graph(grid, testing::parts_of(grid, 3), ranks); },
                 "the partition has 3 parts, but there are 2 ranks");
    expect_error([&] { DistributedGraph::from_shards(ranks->rank() == 0 ? two : other, ranks); },
                 "every rank must have shards of one partition of one graph: rank 1 differs from rank 0");
    expect_error(
        [&] {
          DistributedGraph::from_graph(ranks->rank() == 0 ? grid : path, testing::parts_of(grid, 2), ranks);
        },
        "every rank must have the same graph and partition");
    expect_error(
        [&] {
          DistributedGraph::from_shard(read_shard(ranks->rank() == 0 ? two : other, ranks->rank()), ranks);
        },
        "they must be of one partition");
    expect_error([&] { DistributedGraph::from_shard(read_shard(two, 0), ranks); },
                 "rank 1 of 2 was given shard 0 of 2");
    const at::Tensor none = at::empty({2, 0}, at::kLong);
    expect_error([&] { DistributedGraph::from_edges(3, at::tensor({0}, at::kLong), none, {}, false, ranks); },
                 "the ranks own 2 nodes together, expected each of 3 once");
    expect_error([&] { DistributedGraph::from_edges(2, at::tensor({1}, at::kLong), none, {}, false, ranks); },
                 "two ranks own node 1");
  });
  std::filesystem::remove(two + "/part-0001.safetensors");
  on_two([&](const RanksPtr& ranks) {
    expect_error([&] { DistributedGraph::from_shards(two, ranks); }, "part-0001.safetensors");
  });
}

}  // namespace
}  // namespace topomask
