#include "topomask/graph_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "topomask/error.h"
#include "topomask/graph_builders.h"

namespace topomask {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(const std::string& spec) {
  try {
    load_graph(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GraphSpec, NamesEveryGenerator) {
  const auto nodes = [](const std::string& spec) { return load_graph(spec).graph.num_nodes(); };
  EXPECT_EQ(nodes("path:5"), 5);
  EXPECT_EQ(nodes("cycle:6"), 6);
  EXPECT_EQ(nodes("grid:3x4"), 12);
  EXPECT_EQ(nodes("grid:3x4x5,wrap"), 60);
  EXPECT_EQ(nodes("hypercube:4"), 16);
  EXPECT_EQ(nodes("tree:3"), 15);
  EXPECT_EQ(nodes("tree:2,3"), 13);
  EXPECT_EQ(nodes("karate"), 34);
  EXPECT_TRUE(load_graph("grid:4x4,wrap,diagonals")
                  .graph.to_dense()
                  .equal(grid_graph({4, 4}, {.diagonals = true, .wrap = true}).to_dense()));
  EXPECT_TRUE(load_graph("er:50,0.1,3").graph.col.equal(erdos_renyi(50, 0.1, 3).col));
  EXPECT_TRUE(load_graph("ba:50,2").graph.col.equal(barabasi_albert(50, 2, 0).col));
  EXPECT_TRUE(load_graph("regular:50,4,9").graph.col.equal(random_regular(50, 4, 9).col));
}

TEST(GraphSpec, OneSentencePerMistake) {
  EXPECT_EQ(error_of("grid:3xx4"),
            "--graph grid:3xx4: expected a number for an extent, got '' (the form is "
            "grid:HxW[xD][,diagonals][,wrap])");
  EXPECT_THAT(error_of("grid:1x2x3x4"), HasSubstr("expected 1 to 3 extents, got 4"));
  EXPECT_THAT(error_of("grid:3x4,wrop"), HasSubstr("did you mean 'wrap'?"));
  EXPECT_THAT(error_of("path:"), HasSubstr("expected the number of nodes, got nothing"));
  EXPECT_THAT(error_of("path"), HasSubstr("expected the number of nodes, got nothing"));
  EXPECT_THAT(error_of("path:5,6"), HasSubstr("'6' is one argument too many"));
  EXPECT_THAT(error_of("path:5a"), HasSubstr("expected a number for the number of nodes, got '5a'"));
  EXPECT_THAT(error_of("path:99999999999999999999"), HasSubstr("out of range"));
  EXPECT_THAT(error_of("path:-1"), HasSubstr("at least 0, got -1"));
  EXPECT_THAT(error_of("er:10,nan"), HasSubstr("probability in [0, 1]"));
  EXPECT_THAT(error_of("er:10"), HasSubstr("expected the probability, got nothing"));
  EXPECT_THAT(error_of("gird:3x4"),
              AllOf(StartsWith("--graph gird:3x4: "), HasSubstr("did you mean 'grid'?")));
  EXPECT_THAT(error_of(""), HasSubstr("expected a file or a generator"));
  EXPECT_NE(error_of("no/such/file.mtx"), "no error");
}

TEST(GraphSpec, SizesAreCheckedBeforeAllocation) {
  EXPECT_THAT(error_of("grid:100000x100000"), HasSubstr("at most 2^31 - 1"));
  EXPECT_THAT(error_of("grid:1200x1200x1200,diagonals"), HasSubstr("at most 2^32 entries"));
  EXPECT_THAT(error_of("er:2000000000,0.5"), HasSubstr("at most 2^32 entries"));
  EXPECT_THAT(error_of("ba:2000000000,1000"), HasSubstr("at most 2^32 entries"));
  EXPECT_THAT(error_of("regular:2000000000,4"), HasSubstr("at most 2^31 - 1"));
  EXPECT_THAT(error_of("path:2147483648"), HasSubstr("at most 2^31 - 1"));
  EXPECT_THAT(error_of("tree:31"), HasSubstr("at most 2^31 - 1"));
}

TEST(GraphSpec, PolicyAppliesToGeneratedGraphs) {
  GraphPolicy policy;
  policy.isolated = Isolated::drop;
  const NamedGraph sparse = load_graph("er:60,0.01,1", policy);
  EXPECT_LT(sparse.graph.num_nodes(), 60);
  EXPECT_EQ(summarise(sparse.graph).isolated, 0);
  ASSERT_EQ(static_cast<std::int64_t>(sparse.names.size()), sparse.graph.num_nodes());
  policy = {};
  policy.components = Components::drop;
  EXPECT_EQ(summarise(load_graph("er:60,0.01,1", policy).graph).components, 1);
  // Read as directed, every entry becomes an edge of its own.
  policy = {};
  policy.direction = Direction::directed;
  const Graph directed = load_graph("cycle:5", policy).graph;
  EXPECT_TRUE(directed.directed);
  EXPECT_EQ(summarise(directed).edges, 10);
}

TEST(GraphSpec, FilesAndTheirNames) {
  const auto folder =
      std::filesystem::temp_directory_path() /
      ("topomask_graph_spec_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()));
  std::filesystem::create_directories(folder);
  const std::string edges = folder / "named.tsv", points = folder / "points.csv";
  std::ofstream(edges) << "ann\tbob\nbob\tcat\ndan\teve\n";
  std::ofstream(points) << "0,0\n1,0\n3,0\n";
  GraphPolicy policy;
  policy.components = Components::drop;
  EXPECT_THAT(load_graph(edges).names, ElementsAre("ann", "bob", "cat", "dan", "eve"));
  EXPECT_THAT(load_graph(edges, policy).names, ElementsAre("ann", "bob", "cat"));
  const Graph nearest = load_graph("knn:" + points + ",1").graph;
  EXPECT_TRUE(nearest.directed);
  EXPECT_EQ(nearest.col[2].item<int>(), 1);
  EXPECT_FALSE(load_graph("knn:" + points + ",1,symmetric").graph.directed);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace topomask
