#include "topomask/graph_spec.h"

#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "graph/cpu/limits.h"
#include "support/temporary_folder.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_family.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string spec_error(const std::string& spec) {
  try {
    load_graph(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GraphFamily, KeepsItsShape) {
  const auto resized = [](const std::string& spec, std::int64_t nodes) {
    return graph_family(spec).value().resized(nodes);
  };
  EXPECT_EQ(resized("grid:31623x31623", 1 << 18), "grid:512x512");
  EXPECT_EQ(resized("grid:1000x4000,wrap", 10000), "grid:50x200,wrap");
  EXPECT_EQ(resized("grid:10x1000000", 4000), "grid:10x400");   // thin ones stay
  EXPECT_EQ(resized("grid:100x1000000", 3200), "grid:16x200");  // or shrink a little
  EXPECT_EQ(resized("grid:1000x1000x1000,diagonals", 8000), "grid:20x20x20,diagonals");
  EXPECT_EQ(resized("ba:1000000000,5,7", 4096), "ba:4096,5,7");
  EXPECT_EQ(resized("er:1000000,0.00001,3", 1000), "er:1000,0.01,3");  // the mean degree stays
  EXPECT_EQ(resized("torus:1000000000,8", 4096), "torus:4096,8");
  EXPECT_EQ(graph_family("grid:31623x31623")->nodes, 31623LL * 31623);
  EXPECT_EQ(graph_family("grid:10x10x10")->dimension, 3);
  EXPECT_EQ(graph_family("ba:100,5")->dimension, 0);
  for (const char* none : {"karate", "edges.txt", "shards:parts", "grid:2x2x2x2", "grid:axb", "ba:3x3,2",
                           "hypercube:10", "knn:points.npy,3", "grid:0x3", "grid:99999999999x99999999999"})
    EXPECT_FALSE(graph_family(none).has_value()) << none;
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
  EXPECT_EQ(spec_error("grid:3xx4"),
            "graph 'grid:3xx4': expected an extent of 1 to 3 sizes of at least 1, got '3xx4' (the form is "
            "grid:H[xW[xD]][,diagonals][,wrap])");
  EXPECT_THAT(spec_error("grid:1x2x3x4"), HasSubstr("1 to 3 sizes of at least 1, got '1x2x3x4'"));
  EXPECT_THAT(spec_error("grid:3x4,wrop"), HasSubstr("did you mean 'wrap'?"));
  EXPECT_THAT(spec_error("path:"), HasSubstr("expected the number of nodes, got nothing"));
  EXPECT_THAT(spec_error("path"), HasSubstr("expected the number of nodes, got nothing"));
  EXPECT_THAT(spec_error("path:5,6"), HasSubstr("'6' is one argument too many"));
  EXPECT_THAT(spec_error("path:5a"), HasSubstr("expected a number for the number of nodes, got '5a'"));
  EXPECT_THAT(spec_error("path:99999999999999999999"), HasSubstr("out of range"));
  EXPECT_THAT(spec_error("path:-1"), HasSubstr("at least 1 for the number of nodes, got -1"));
  EXPECT_THAT(spec_error("er:10,nan"), HasSubstr("probability in [0, 1]"));
  EXPECT_THAT(spec_error("er:10"), HasSubstr("expected the probability, got nothing"));
  EXPECT_THAT(spec_error("gird:3x4"),
              AllOf(StartsWith("graph 'gird:3x4': "), HasSubstr("did you mean 'grid'?")));
  EXPECT_THAT(spec_error(""), HasSubstr("expected a file or a generator"));
  EXPECT_NE(spec_error("no/such/file.mtx"), "no error");
}

// A size of zero is a mistake; the library itself can make a graph without nodes.
TEST(GraphSpec, SizesOfZeroAreMistakes) {
  for (const char* spec :
       {"path:0", "cycle:0", "er:0,0.5", "ba:0,0", "ba:0,1", "ba:5,0", "regular:0,0", "regular:5,0",
        "regular:0,3", "torus:0,3", "torus:9,0", "knn:points.ply,0", "path:-3", "knn:points.ply,-2"}) {
    EXPECT_THAT(spec_error(spec),
                AllOf(StartsWith(std::string("graph '") + spec + "': expected at least 1 for "),
                      HasSubstr("(the form is ")));
  }
  for (const char* spec : {"grid:0", "grid:0x5", "grid:5x0", "grid:2x0x3,wrap", "grid:-1x5"})
    EXPECT_THAT(spec_error(spec), HasSubstr("expected an extent of 1 to 3 sizes of at least 1")) << spec;
  EXPECT_EQ(path_graph(0).num_nodes(), 0);
  EXPECT_EQ(grid_graph({0, 5}).num_nodes(), 0);
  EXPECT_EQ(erdos_renyi(0, 0.5).num_nodes(), 0);
  EXPECT_EQ(random_regular(5, 0).num_entries(), 0);
}

TEST(GraphSpec, SizesThatDoNotFitEachOtherAreOneSentence) {
  const auto expect = [](const std::string& spec, const char* part) {
    EXPECT_THAT(spec_error(spec), AllOf(StartsWith("graph '" + spec + "': "), HasSubstr(part)));
  };
  expect("ba:5,5", "fewer than N = 5");
  expect("ba:1,1", "fewer than N = 1");
  expect("regular:5,7", "less than N = 5, got 7");
  expect("regular:5,3", "N * degree to be even");
  expect("torus:0x3", "expected a number for the number of points, got '0x3'");
  expect("tree:-1", "depth of at least 0");
  expect("tree:3,0", "branching of at least 1");
  expect("hypercube:-1", "0 to 30");
  expect("hypercube:40", "0 to 30");
  expect("er:10,-0.5", "probability in [0, 1]");
  expect("er:10,1.5", "probability in [0, 1]");
  expect("er:10,0.5,-1", "the seed");
  expect("karate:5", "too many");
  // Small but defined.
  EXPECT_EQ(load_graph("path:1").graph.num_nodes(), 1);
  EXPECT_EQ(load_graph("cycle:1").graph.num_entries(), 0);
  EXPECT_EQ(load_graph("grid:1x1x1,wrap,diagonals").graph.num_nodes(), 1);
  EXPECT_EQ(load_graph("hypercube:0").graph.num_nodes(), 1);
  EXPECT_EQ(load_graph("tree:0").graph.num_nodes(), 1);
  EXPECT_EQ(load_graph("er:10,0").graph.num_entries(), 0);
  EXPECT_EQ(load_graph("er:10,1").graph.num_entries(), 90);
  EXPECT_EQ(load_graph("ba:2,1").graph.num_entries(), 2);
  EXPECT_EQ(load_graph("regular:4,3").graph.num_entries(), 12);
}

// --help, messages, the page on graphs and docstrings all come from one table.
TEST(GraphSpec, FormsAreListedOnce) {
  std::ifstream file(TOPOMASK_DOCS "graphs.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}}, text = graph_forms_text();
  const std::string unknown = spec_error("nonsense");
  for (const GraphForm& form : graph_forms()) {
    SCOPED_TRACE(form.name);
    EXPECT_THAT(page,
                HasSubstr("| `" + form.form + "` | " + form.description + " | `" + form.example + "` |"));
    EXPECT_THAT(text, HasSubstr("  " + form.form + " "));
    EXPECT_THAT(text, HasSubstr(form.description));
    EXPECT_THAT(unknown, HasSubstr(form.name));
    EXPECT_THAT(form.form, StartsWith(form.name));
    if (form.name == "knn" || form.name == "shards") continue;  // their files are not there
    EXPECT_GT(load_graph(form.example).graph.num_nodes(), 0);
  }
  for (const std::string& extension : graph_file_extensions()) {
    EXPECT_THAT(page, HasSubstr(extension));
    EXPECT_THAT(text, HasSubstr(extension));
  }
  EXPECT_THAT(page, HasSubstr("K is " + std::to_string(KnnOptions().k) + " by default"));
}

TEST(GraphSpec, SizesAreCheckedBeforeAllocation) {
  EXPECT_NO_THROW(check_memory("here", 1e6));
  EXPECT_THROW(check_memory("here", 1e18), Error);

  EXPECT_THAT(spec_error("grid:100000x100000"), HasSubstr("at most 2^31 - 1"));
  EXPECT_THAT(spec_error("grid:1200x1200x1200,diagonals"), HasSubstr("at most 2^32 entries"));
  EXPECT_THAT(spec_error("er:2000000000,0.5"), HasSubstr("at most 2^32 entries"));
  EXPECT_THAT(spec_error("ba:2000000000,1000"), HasSubstr("at most 2^32 entries"));
  EXPECT_THAT(spec_error("regular:2000000000,4"), HasSubstr("at most 2^31 - 1"));
  EXPECT_THAT(spec_error("path:2147483648"), HasSubstr("at most 2^31 - 1"));
  EXPECT_THAT(spec_error("tree:31"), HasSubstr("at most 2^31 - 1"));
}

TEST(GraphSpec, PolicyAppliesToGeneratedGraphs) {
  GraphPolicy policy;
  policy.isolated = Isolated::drop;
  const LoadedGraph sparse = load_graph("er:60,0.01,1", {.policy = policy, .read = {}});
  EXPECT_LT(sparse.graph.num_nodes(), 60);
  EXPECT_EQ(summarise(sparse.graph).isolated, 0);
  ASSERT_EQ(static_cast<std::int64_t>(sparse.names.size()), sparse.graph.num_nodes());
  policy = {};
  policy.components = Components::drop;
  EXPECT_EQ(summarise(load_graph("er:60,0.01,1", {.policy = policy, .read = {}}).graph).components, 1);
  // Read as directed, every entry becomes an edge of its own.
  policy = {};
  policy.direction = Direction::directed;
  const Graph directed = load_graph("cycle:5", {.policy = policy, .read = {}}).graph;
  EXPECT_TRUE(directed.directed);
  EXPECT_EQ(summarise(directed).edges, 10);
}

TEST(GraphSpec, FilesAndTheirNames) {
  const testing::TemporaryFolder folder;
  const std::string edges = folder.write("named.tsv", "ann\tbob\nbob\tcat\ndan\teve\n");
  LoadOptions largest;
  largest.policy.components = Components::drop;
  EXPECT_THAT(load_graph(edges).names, ElementsAre("ann", "bob", "cat", "dan", "eve"));
  EXPECT_THAT(load_graph(edges, largest).names, ElementsAre("ann", "bob", "cat"));
  LoadOptions small;
  small.read.max_file_size = 5;
  EXPECT_THROW(load_graph(edges, small), Error);
  const std::string points = folder.write("points.csv", "0,0\n1,0\n3,0\n");
  EXPECT_THROW(load_graph("knn:" + points, small), Error);
}

TEST(GraphSpec, NeighboursOfPointsInAFile) {
  const testing::TemporaryFolder folder;
  const std::string points = folder.write("points.csv", "0,0\n1,0\n3,0\n8,0.1\n20,0\n21,5\n");
  const Graph nearest = load_graph("knn:" + points + ",1").graph;
  EXPECT_TRUE(nearest.directed);
  EXPECT_EQ(nearest.col[2].item<int>(), 1);
  EXPECT_FALSE(load_graph("knn:" + points + ",1,symmetric").graph.directed);
  // Without K, and without a word about symmetry, the options' own defaults hold.
  const at::Tensor tensor =
      at::tensor({0.0, 0.0, 1.0, 0.0, 3.0, 0.0, 8.0, 0.1, 20.0, 0.0, 21.0, 5.0}, at::kDouble).view({6, 2});
  const Graph plain = load_graph("knn:" + points).graph, expected = knn_graph(tensor, KnnOptions{});
  EXPECT_EQ(plain.directed, expected.directed);
  EXPECT_TRUE(plain.col.equal(expected.col));
  KnnOptions both;
  both.symmetric = true;
  EXPECT_TRUE(load_graph("knn:" + points + ",symmetric").graph.col.equal(knn_graph(tensor, both).col));
}

TEST(GraphSpec, WarnsOfGraphsThatAreHardlyMeant) {
  const testing::TemporaryFolder folder;
  const std::string cloud = folder.write("cloud.obj", "v 0 0 0\nv 1 0 0\n");
  EXPECT_THAT(load_graph(cloud).warnings, ElementsAre(HasSubstr("2 nodes and no edges")));
  LoadOptions joined;
  joined.policy.isolated = Isolated::drop;
  EXPECT_EQ(load_graph(cloud, joined).graph.num_nodes(), 0);
  EXPECT_THAT(load_graph(cloud, joined).warnings,
              ElementsAre(HasSubstr("no edges"), HasSubstr("no node is left")));
  EXPECT_THAT(load_graph("er:5,0", joined).warnings, ElementsAre(HasSubstr("no node is left of 5")));
  const std::string nothing =
      folder.write("nothing.mtx", "%%MatrixMarket matrix coordinate pattern general\n0 0 0\n");
  EXPECT_EQ(load_graph(nothing).graph.num_nodes(), 0);
  EXPECT_THAT(load_graph(nothing).warnings, ElementsAre(HasSubstr("0 nodes")));
  EXPECT_TRUE(load_graph("karate").warnings.empty());
}

}  // namespace
}  // namespace topomask
