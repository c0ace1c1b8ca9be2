#include "support/expect_edges.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

using namespace topomask::testing;

EdgeList read(std::string_view content) {
  return read_matrix_market(content, "file");
}

void rejects(std::string_view content, std::initializer_list<const char*> parts) {
  expect_rejected(read_matrix_market, content, parts);
}

TEST(matrix_market, reads_a_general_matrix_as_directed) {
  const EdgeList edges = read(
      "%%MatrixMarket matrix coordinate real general\n% a comment\n\n3 3 3\n1 2 0.5\n2 1 0.25\n3 3 -1e2\n");
  EXPECT_EQ(edges.num_nodes, 3);
  EXPECT_TRUE(edges.directed);
  EXPECT_EQ(edges.source, (Ids{0, 1, 2}));
  EXPECT_EQ(edges.target, (Ids{1, 0, 2}));
  EXPECT_EQ(edges.weight, (Weights{0.5f, 0.25f, -100.0f}));
  EXPECT_TRUE(edges.names.empty());
}

TEST(matrix_market, a_general_matrix_equal_to_its_transpose_is_undirected_with_each_edge_once) {
  const EdgeList edges = read(
      "%%MatrixMarket matrix coordinate real general\r\n3 3 5\r\n3 1 2\r\n1 2 0.5\r\n2 1 0.5\r\n2 2 7\r\n1 3 "
      "2");
  EXPECT_FALSE(edges.directed);
  EXPECT_EQ(edges.source, (Ids{0, 1, 0}));
  EXPECT_EQ(edges.target, (Ids{1, 1, 2}));
  EXPECT_EQ(edges.weight, (Weights{0.5f, 7.0f, 2.0f}));
}

TEST(matrix_market, reads_symmetric_patterns) {
  const EdgeList edges = read("%%MatrixMarket MATRIX Coordinate Pattern Symmetric\n4 4 2\n2 1\n4 3\n");
  EXPECT_FALSE(edges.directed);
  EXPECT_EQ(edges.num_nodes, 4);
  EXPECT_EQ(edges.source, (Ids{1, 3}));
  EXPECT_EQ(edges.target, (Ids{0, 2}));
  EXPECT_TRUE(edges.weight.empty());
}

TEST(matrix_market, a_skew_symmetric_matrix_is_directed_with_both_signs) {
  const EdgeList edges = read("%%MatrixMarket matrix coordinate integer skew-symmetric\n3 3 1\n2 1 5\n");
  EXPECT_TRUE(edges.directed);
  EXPECT_EQ(edges.source, (Ids{1, 0}));
  EXPECT_EQ(edges.target, (Ids{0, 1}));
  EXPECT_EQ(edges.weight, (Weights{5.0f, -5.0f}));
}

TEST(matrix_market, reads_arrays_column_by_column_without_their_zeros) {
  const EdgeList general = read("%%MatrixMarket matrix array real general\n2 2\n0\n1.5\n2.5\n0\n");
  EXPECT_TRUE(general.directed);
  EXPECT_EQ(general.source, (Ids{1, 0}));
  EXPECT_EQ(general.target, (Ids{0, 1}));
  EXPECT_EQ(general.weight, (Weights{1.5f, 2.5f}));
  const EdgeList symmetric = read("%%MatrixMarket matrix array real symmetric\n2 2\n1\n2\n0\n");
  EXPECT_FALSE(symmetric.directed);
  EXPECT_EQ(symmetric.source, (Ids{0, 1}));
  EXPECT_EQ(symmetric.target, (Ids{0, 0}));
  const EdgeList skew = read("%%MatrixMarket matrix array real skew-symmetric\n2 2\n3\n");
  EXPECT_EQ(skew.weight, (Weights{3.0f, -3.0f}));
}

TEST(matrix_market, reads_a_matrix_without_entries) {
  const EdgeList edges = read("%%MatrixMarket matrix coordinate pattern general\n5 5 0\n");
  EXPECT_EQ(edges.num_nodes, 5);
  EXPECT_TRUE(edges.source.empty());
}

TEST(matrix_market, rejects_what_is_no_matrix_market_file) {
  rejects("", {"empty"});
  rejects(binary_garbage(), {"line 1", "binary"});
  rejects("hello\n", {"line 1", "'hello'"});
  rejects("%%MatrixMarket matrix coordinate complex general\n1 1 0\n", {"line 1", "'complex'"});
  rejects("%%MatrixMarket matrix coordinate real hermitian\n1 1 0\n", {"line 1", "'hermitian'"});
  rejects("%%MatrixMarket matrix list real general\n1 1 0\n", {"line 1", "'list'"});
  rejects("%%MatrixMarket matrix array pattern general\n1 1\n", {"line 1", "pattern"});
  rejects("%%MatrixMarket matrix coordinate pattern skew-symmetric\n1 1 0\n", {"line 1", "skew"});
}

TEST(matrix_market, rejects_sizes_that_cannot_be) {
  const std::string header = "%%MatrixMarket matrix coordinate real general\n";
  rejects(header, {"size line"});
  rejects(header + "3 4 0\n", {"line 2", "square", "3 rows", "4 columns"});
  rejects(header + "3 3\n", {"line 2", "rows columns entries"});
  rejects(header + "-3 -3 0\n", {"line 2"});
  rejects(header + "3000000000 3000000000 0\n", {"line 2", "2147483647"});
  rejects(header + "3 3 1000000000000\n1 1 1\n", {"line 2", "1000000000000"});
  rejects(header + "3 3 9999999999999999999999\n", {"line 2"});
  rejects(header + "2000000000 2000000000 1\n1 1 1\n", {"line 2", "2000000000 nodes"});
  rejects("%%MatrixMarket matrix array real general\n2000000000 2000000000\n1\n",
          {"line 2", "4000000000000000000"});
}

TEST(matrix_market, rejects_bad_entries) {
  const std::string header = "%%MatrixMarket matrix coordinate real general\n3 3 2\n";
  rejects(header + "1 1 0.125000\n", {"ends after 1 of the 2 entries"});
  rejects(header + "1 1 1\n1 2 1\n1 3 1\n", {"line 5", "end of the file"});
  rejects(header + "1 1 1\n0 2 1\n", {"line 4", "from 1 to 3"});
  rejects(header + "1 1 1\n1 4 1\n", {"line 4", "from 1 to 3"});
  rejects(header + "1 1 1\n-1 2 1\n", {"line 4", "from 1 to 3"});
  rejects(header + "1 1 1\n1 2 nan\n", {"line 4", "finite", "'nan'"});
  rejects(header + "1 1 inf\n1 2 1\n", {"line 3", "finite", "'inf'"});
  rejects(header + "1 1 1e300\n1 2 1\n", {"line 3", "finite", "'1e300'"});
  rejects(header + "1 1 1\n1 2       \n", {"line 4", "row column value"});
  rejects(header + "1 1 1 1\n1 2 1\n", {"line 3", "one entry"});
  rejects("%%MatrixMarket matrix coordinate real skew-symmetric\n3 3 1\n2 2 1\n", {"line 3", "diagonal"});
  rejects("%%MatrixMarket matrix array real general\n1 1\nx\n", {"line 3", "'x'"});
}

}  // namespace
}  // namespace topomask
