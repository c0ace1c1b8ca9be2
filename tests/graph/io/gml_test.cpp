#include "support/expect_edges.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

using namespace topomask::testing;

EdgeList read(std::string_view content) {
  return read_gml(content, "file");
}

void rejects(std::string_view content, std::initializer_list<const char*> parts) {
  expect_rejected(read_gml, content, parts);
}

TEST(gml, reads_nodes_in_the_order_of_the_file) {
  const EdgeList edges = read(
      "Creator \"some [program]\"\n# comment ]\ngraph [\n  node [ id 7 label \"seven &amp; more\" ]\n"
      "  node [ graphics [ x 1 deep [ id 99 ] ] id 2 ]\n  edge [ source 2 target 7 ]\n]\n");
  EXPECT_EQ(edges.num_nodes, 2);
  EXPECT_FALSE(edges.directed);
  EXPECT_EQ(edges.source, (Ids{1}));
  EXPECT_EQ(edges.target, (Ids{0}));
  EXPECT_EQ(edges.names, (Names{"seven &amp; more", "2"}));
  EXPECT_TRUE(edges.weight.empty());
}

TEST(gml, weight_counts_before_value_and_a_missing_one_is_1) {
  const EdgeList edges = read(
      "graph [ directed 1 edge [ source 0 target 1 value 3 weight 2.5 ] edge [ source 1 target 0 value 4 ]"
      " edge [ source 1 target 1 ] edge [ weight \"7\" value 3 source 0 target 0 ] node [ id 0 ] node [ id 1 "
      "] ]");
  EXPECT_TRUE(edges.directed);
  EXPECT_EQ(edges.weight, (Weights{2.5f, 4.0f, 1.0f, 7.0f}));
  EXPECT_EQ(edges.source, (Ids{0, 1, 1, 0}));
  EXPECT_TRUE(edges.names.empty()) << "ids 0, 1 without labels are no names";
}

TEST(gml, rejects_malformed_files) {
  rejects("", {"empty"});
  rejects("\n\n", {"line 3", "graph ["});
  rejects(binary_garbage(), {"binary"});
  rejects("hello world", {"graph ["});
  rejects("graph 5", {"line 1", "'['", "'5'"});
  rejects("graph [\n node [ id 0 ]", {"ends inside", "line 1"});
  rejects("graph [\n node [ id 0 label \"abc ] ]", {"line 2", "string"});
  rejects("graph [\n graphics [ x [ y 1 ]", {"ends inside", "line 2"});
  rejects("graph [ node [ id ] ]", {"line 1", "'id'"});
  rejects("graph [ node [ label ] ]", {"value after 'label'"});
  rejects("graph [ [ ] ]", {"expected a key"});
  rejects("graph [ directed 2 ]", {"directed 0 or 1", "'2'"});
  rejects("graph [ ]", {"at least one node"});
}

TEST(gml, rejects_bad_nodes_and_edges) {
  rejects("graph [\n node [ label \"a\" ]\n]", {"line 2", "id"});
  rejects("graph [\n node [ id -1 ]\n]", {"line 2", "non-negative", "'-1'"});
  rejects("graph [\n node [ id \"a\" ]\n]", {"line 2", "'a'"});
  rejects("graph [\n node [ id 1 ]\n node [ id 1 ]\n]", {"line 3", "twice"});
  rejects("graph [\n node [ id 1 ]\n edge [ source 1 target 3 ]\n]", {"line 3", "node 3"});
  rejects("graph [\n node [ id 1 ]\n edge [ source 1 ]\n]", {"line 3", "target"});
  rejects("graph [\n node [ id 1 ]\n edge [ source 1 target 1\n weight nan ]\n]", {"line 4", "finite"});
}

TEST(gml, survives_deep_nesting) {
  const std::string deep(1000000, '[');
  std::string open;
  for (int k = 0; k < 200000; ++k) open += "a [ ";
  rejects("graph [ " + open, {"ends inside"});
  rejects("graph [ a " + deep, {"ends inside"});
}

}  // namespace
}  // namespace topomask
