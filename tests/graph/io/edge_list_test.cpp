#include <fmt/format.h>

#include "support/expect_edges.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

using namespace topomask::testing;

EdgeList read(std::string_view content) {
  return read_edge_list(content, "file");
}

void rejects(std::string_view content, std::initializer_list<const char*> parts) {
  expect_rejected(read_edge_list, content, parts);
}

TEST(edge_list, ids_from_0_keep_their_number) {
  const EdgeList edges = read("2 1\n0 1\n");
  EXPECT_EQ(edges.num_nodes, 3);
  EXPECT_EQ(edges.source, (Ids{2, 0}));
  EXPECT_EQ(edges.target, (Ids{1, 1}));
  EXPECT_FALSE(edges.directed);
  EXPECT_TRUE(edges.weight.empty());
  EXPECT_TRUE(edges.names.empty());
}

TEST(edge_list, other_integers_are_numbered_in_ascending_order) {
  const EdgeList gap = read("3 1\n0 3\n");
  EXPECT_EQ(gap.num_nodes, 3);
  EXPECT_EQ(gap.source, (Ids{2, 0}));
  EXPECT_EQ(gap.target, (Ids{1, 2}));
  EXPECT_EQ(gap.names, (Names{"0", "1", "3"}));
  const EdgeList large = read("9000000000000000000 7\n7 +12\n");
  EXPECT_EQ(large.source, (Ids{2, 0}));
  EXPECT_EQ(large.target, (Ids{0, 1}));
  EXPECT_EQ(large.names, (Names{"7", "12", "9000000000000000000"}));
  EXPECT_EQ(read("0 9223372036854775807\n").names, (Names{"0", "9223372036854775807"}));
  EXPECT_EQ(read("1 2\n2 3\n").names, (Names{"1", "2", "3"}));
}

TEST(edge_list, words_are_numbered_in_order_of_appearance) {
  const EdgeList edges = read("bob ann\nann 17\n");
  EXPECT_EQ(edges.source, (Ids{0, 1}));
  EXPECT_EQ(edges.target, (Ids{1, 2}));
  EXPECT_EQ(edges.names, (Names{"bob", "ann", "17"}));
  EXPECT_EQ(read("1 2\n2 x\n").names, (Names{"1", "2", "x"}));
}

TEST(edge_list, numbers_many_words) {
  constexpr int kNodes = 5000;
  std::string content;
  for (int k = 0; k < kNodes; ++k) {
    content += fmt::format("n{} n{}\n", k, (k + 1) % kNodes);
  }
  const EdgeList edges = read(content + content);
  EXPECT_EQ(edges.num_nodes, kNodes);
  ASSERT_EQ(edges.source.size(), 2u * kNodes);
  for (int k = 0; k < 2 * kNodes; ++k) {
    ASSERT_EQ(edges.source[static_cast<std::size_t>(k)], k % kNodes);
    ASSERT_EQ(edges.target[static_cast<std::size_t>(k)], (k + 1) % kNodes);
  }
  EXPECT_EQ(edges.names.back(), "n4999");
}

TEST(edge_list, a_comment_may_declare_nodes_without_edges) {
  const EdgeList edges = read("# Nodes: 8 Edges: 2\n0\t1\n3\t5\n");
  EXPECT_EQ(edges.num_nodes, 8);
  EXPECT_EQ(edges.target, (Ids{1, 5}));
  EXPECT_TRUE(edges.names.empty());
  EXPECT_EQ(read("# Nodes: 3 Edges: 1\n0 5\n").num_nodes, 2) << "the declaration does not cover id 5";
  EXPECT_EQ(read("# Nodes: 2000000000\n0 1\n").num_nodes, 2) << "not plausible for one edge";
  EXPECT_EQ(read("0 1\n# Nodes: 9\n").num_nodes, 2) << "only comments above the first row count";
}

TEST(edge_list, reads_weights_and_every_separator) {
  for (const char* content : {"0 1 0.5\n1 2 -2\n", "0\t1\t0.5\n1\t2\t-2\n", "0,1,0.5\n1,2,-2\n",
                              "0;1;.5\n1;2;-2e0", " 0 ,  1, 0.5 \r\n\r\n1,2,-2\r\n",
                              "\xEF\xBB\xBF"
                              "0 1 5e-1\n1 2 -2\n"}) {
    SCOPED_TRACE(content);
    const EdgeList edges = read(content);
    EXPECT_EQ(edges.source, (Ids{0, 1}));
    EXPECT_EQ(edges.target, (Ids{1, 2}));
    EXPECT_EQ(edges.weight, (Weights{0.5f, -2.0f}));
  }
}

TEST(edge_list, quoted_words_may_hold_separators) {
  EXPECT_EQ(read("\"Smith, Ann\",Bob Jones\n").names, (Names{"Smith, Ann", "Bob Jones"}));
  EXPECT_EQ(read("\"a b\" c\n").names, (Names{"a b", "c"}));
}

TEST(edge_list, skips_comments_and_headers) {
  EXPECT_EQ(read("# a b c d e\n% x\n// y\nnode_1,node_2\n0,1\n").source, (Ids{0}));
  EXPECT_EQ(read("source target weight\n0 1 2.5\n").weight, (Weights{2.5f}));
  EXPECT_EQ(read("source target weight\nann bob 2.5\n").names, (Names{"ann", "bob"}));
  EXPECT_EQ(read("From,To\nann,bob\n").names, (Names{"ann", "bob"}));
  EXPECT_EQ(read("carl,dora\nann,bob\n").names, (Names{"carl", "dora", "ann", "bob"}));
}

TEST(edge_list, reads_four_columns_with_edge_ids) {
  const EdgeList edges = read("0 2 1 0.5\n1 0 1 1.5\n");
  EXPECT_EQ(edges.source, (Ids{2, 0}));
  EXPECT_EQ(edges.target, (Ids{1, 1}));
  EXPECT_EQ(edges.weight, (Weights{0.5f, 1.5f}));
  EXPECT_EQ(read("id,source,target,weight\n0,0,1,4\n").weight, (Weights{4.0f}));
  rejects("0 2 1 0.5\n2 0 1 1.5\n", {"line 2", "edge id 1", "'2'"});
  rejects("5 2 1 0.5\n", {"line 1", "edge id 0", "'5'"});
}

TEST(edge_list, rejects_what_is_no_edge_list) {
  rejects("", {"at least one edge"});
  rejects("# nothing\n", {"at least one edge"});
  rejects("source target\n", {"at least one edge"});
  rejects(binary_garbage(), {"line 1", "binary"});
  rejects(std::string_view("0 1\n1 2\0\n", 9), {"line 2", "0x00"});
  rejects("0 1\n2\n", {"line 2", "got 1", "'2'"});
  rejects("0 1 2 3 4\n", {"line 1", "got 5"});
  rejects("0 1\n1 2 0.5\n", {"line 2", "2 columns as before, got 3"});
  rejects("0,1\n,2\n", {"line 2", "not empty"});
  rejects("0,1,\n", {"line 1", "not empty"});
  rejects("\"a,b\n", {"line 1"});
}

TEST(edge_list, rejects_negative_and_oversized_ids) {
  rejects("0 1\n1 -2\n", {"line 2", "from 0", "'-2'"});
  rejects("-1 0\n", {"line 1", "'-1'"});
  rejects("0 1\n99999999999999999999 1\n", {"line 2", "2^63"});
}

TEST(edge_list, rejects_weights_that_are_not_finite) {
  rejects("0 1 1\n1 2 NaN\n", {"line 2", "finite", "'NaN'"});
  rejects("0 1 inf\n", {"line 1", "finite"});
  rejects("0 1 1e39\n", {"line 1", "finite"});
  rejects("0 1 x\n", {"line 1", "'x'"});
  rejects("ann bob nan\n", {"line 1", "'nan'"});
}

}  // namespace
}  // namespace topomask
