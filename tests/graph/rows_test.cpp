// Edge lists to rows under every policy, and what Graph offers on top, against dense matrices in double.
#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/random.h"
#include "graph/cpu/components.h"
#include "graph/cpu/rows.h"
#include "topomask/error.h"
#include "topomask/graph.h"
#include "topomask/graph_builders.h"

namespace topomask {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

EdgeList random_edges(std::int64_t num_nodes, std::int64_t count, bool directed, std::uint64_t seed) {
  RandomStream random(seed, 3);
  EdgeList edges;
  edges.num_nodes = num_nodes;
  edges.directed = directed;
  for (std::int64_t e = 0; e < count; ++e) {
    edges.source.push_back(
        static_cast<std::int32_t>(random.next_below(static_cast<std::uint64_t>(num_nodes))));
    edges.target.push_back(
        static_cast<std::int32_t>(random.next_below(static_cast<std::uint64_t>(num_nodes))));
    edges.weight.push_back(static_cast<float>(random.next_double() * 4 - 2));
  }
  return edges;
}

// a-b twice in both orders, a self-loop twice, an isolated node 3, a second component 4-5.
EdgeList irregular(bool directed) {
  EdgeList edges;
  edges.num_nodes = 6;
  edges.directed = directed;
  edges.source = {1, 0, 1, 1, 1, 5};
  edges.target = {0, 1, 1, 1, 2, 4};
  edges.weight = {2, 3, 5, 7, -1, 0};
  return edges;
}

TEST(Rows, UndirectedDuplicates) {
  GraphPolicy policy;
  const auto dropped = build_rows(irregular(false), policy).rows;
  EXPECT_THAT(dropped.row_ptr, ElementsAre(0, 1, 4, 5, 5, 6, 7));
  EXPECT_THAT(dropped.col, ElementsAre(1, 0, 1, 2, 1, 5, 4));
  EXPECT_THAT(dropped.weight, ElementsAre(2, 2, 5, -1, -1, 0, 0));
  policy.duplicates = Duplicates::sum;
  EXPECT_THAT(build_rows(irregular(false), policy).rows.weight, ElementsAre(5, 5, 12, -1, -1, 0, 0));
  policy.duplicates = Duplicates::keep;
  const auto kept = build_rows(irregular(false), policy).rows;
  EXPECT_THAT(kept.col, ElementsAre(1, 1, 0, 0, 1, 1, 2, 1, 5, 4));
  EXPECT_THAT(kept.weight, ElementsAre(2, 3, 2, 3, 5, 7, -1, -1, 0, 0));
}

TEST(Rows, DirectedDuplicatesAreOfOneDirection) {
  GraphPolicy policy;
  policy.duplicates = Duplicates::sum;
  const auto built = build_rows(irregular(true), policy);
  EXPECT_TRUE(built.directed);
  EXPECT_THAT(built.rows.col, ElementsAre(1, 0, 1, 2, 4));
  EXPECT_THAT(built.rows.weight, ElementsAre(3, 2, 12, -1, 0));
  policy.direction = Direction::undirected;
  EXPECT_THAT(build_rows(irregular(true), policy).rows.weight, ElementsAre(5, 5, 12, -1, -1, 0, 0));
}

TEST(Rows, DropsSelfLoopsIsolatedNodesAndSmallComponents) {
  GraphPolicy policy;
  policy.self_loops = SelfLoops::drop;
  EXPECT_THAT(build_rows(irregular(false), policy).rows.col, ElementsAre(1, 0, 2, 1, 5, 4));
  policy.isolated = Isolated::drop;
  const auto connected = build_rows(irregular(false), policy);
  EXPECT_FALSE(connected.all_kept);
  EXPECT_THAT(connected.kept, ElementsAre(0, 1, 2, 4, 5));
  EXPECT_THAT(connected.rows.col, ElementsAre(1, 0, 2, 1, 4, 3));
  policy.components = Components::drop;
  EXPECT_THAT(build_rows(irregular(false), policy).kept, ElementsAre(0, 1, 2));
  EdgeList no_edges;
  no_edges.num_nodes = 3;
  const auto empty = build_rows(no_edges, policy);
  EXPECT_EQ(empty.rows.num_nodes(), 0);
  EXPECT_FALSE(empty.all_kept);
}

TEST(Rows, RejectsBadEdges) {
  EdgeList edges = irregular(false);
  edges.target[2] = 6;
  EXPECT_EQ(error_of([&] { build_rows(edges, {}); }),
            "Graph::from_edges: edge 2 joins 1 and 6, but nodes are numbered 0 to 5");
  edges = irregular(false);
  edges.weight[1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(error_of([&] { build_rows(edges, {}); }), HasSubstr("the weight of edge 1 is inf"));
  edges.weight.pop_back();
  EXPECT_THAT(error_of([&] { build_rows(edges, {}); }), HasSubstr("one weight per edge (6)"));
  edges = EdgeList{};
  edges.num_nodes = std::int64_t{1} << 31;
  EXPECT_THAT(error_of([&] { build_rows(edges, {}); }), HasSubstr("at most 2^31 - 1 = 2147483647 nodes"));
  edges = irregular(false);
  edges.weight = {3e38f, 3e38f, 1, 1, 1, 1};
  EXPECT_THAT(error_of([&] { build_rows(edges, {.duplicates = Duplicates::sum}); }),
              HasSubstr("sum to 6e+38"));
}

TEST(Rows, EdgesOfIsTheInverse) {
  for (const bool directed : {false, true}) {
    const Graph graph = Graph::from_edges(random_edges(40, 150, directed, 4));
    EXPECT_TRUE(Graph::from_edges(edges_of(graph.view(), directed)).to_dense().equal(graph.to_dense()));
  }
}

TEST(Graph, EmptyAndSingle) {
  EXPECT_EQ(Graph().num_nodes(), 0);
  EXPECT_EQ(summarise(Graph()).components, 0);
  EXPECT_EQ(Graph().to_dense().numel(), 0);
  EXPECT_EQ(Graph().transposed().num_nodes(), 0);
  EXPECT_EQ(reverse_cuthill_mckee(Graph()).numel(), 0);
  const Graph one = path_graph(1);
  for (const auto how : {Normalisation::symmetric, Normalisation::random_walk, Normalisation::max_degree}) {
    EXPECT_EQ(normalise(one, how).num_entries(), 0);
    EXPECT_EQ(normalise(Graph(), how).num_nodes(), 0);
  }
  EXPECT_EQ(summarise(one).isolated, 1);
}

TEST(Graph, DenseRoundTripTransposeAndSymmetry) {
  for (const bool directed : {false, true}) {
    const Graph graph = Graph::from_edges(random_edges(30, 120, directed, 6));
    const at::Tensor dense = graph.to_dense();
    EXPECT_TRUE(graph.transposed().to_dense().equal(dense.t()));
    EXPECT_EQ(graph.transposed().directed, directed);
    EXPECT_EQ(graph.is_symmetric(), !directed);
    const Graph again = Graph::from_dense(dense);
    EXPECT_EQ(again.directed, directed);
    EXPECT_TRUE(again.to_dense().equal(dense));
  }
}

TEST(Graph, FromCsrTensorsSortsAndValidates) {
  const at::Tensor row_ptr = at::tensor({0, 2, 3}, at::kInt), col = at::tensor({1, 0, 0}, at::kLong);
  const at::Tensor weight = at::tensor({2.0, 3.0, 2.0}, at::kDouble);
  const Graph graph = Graph::from_csr_tensors(row_ptr, col, weight);
  EXPECT_FALSE(graph.directed);
  EXPECT_TRUE(graph.col.equal(at::tensor({0, 1, 0}, at::kInt)));
  EXPECT_TRUE(graph.weight.equal(at::tensor({3.0f, 2.0f, 2.0f})));
  EXPECT_TRUE(Graph::from_csr_tensors(row_ptr, at::tensor({1, 0, 1}, at::kLong), {}).directed);
  const auto message = [&](const at::Tensor& r, const at::Tensor& c, const at::Tensor& w) {
    return error_of([&] { Graph::from_csr_tensors(r, c, w); });
  };
  EXPECT_THAT(message(at::tensor({0, 4, 3}, at::kInt), col, weight),
              HasSubstr("non-decreasing, got 4 before 3 at row 1"));
  EXPECT_THAT(message(at::tensor({1, 2, 3}, at::kInt), col, weight), HasSubstr("begin with 0"));
  EXPECT_THAT(message(at::tensor({0, 2, 2}, at::kInt), col, weight), HasSubstr("end with the 3 entries"));
  EXPECT_THAT(message(row_ptr, at::tensor({1, 0, 2}, at::kLong), weight),
              HasSubstr("columns from 0 to 1, got 2"));
  EXPECT_THAT(message(row_ptr, weight, weight),
              HasSubstr("expected col [E] of int32 or int64, got Double [3] on cpu"));
  EXPECT_THAT(message(row_ptr, col, at::tensor({1.0})), HasSubstr("weight [3] like col"));
  EXPECT_THAT(message(row_ptr, col, weight / 0), HasSubstr("weight 0 is inf"));
  EXPECT_THAT(error_of([&] { Graph::from_dense(weight); }), HasSubstr("expected a matrix [N, N]"));
}

TEST(Graph, NormalisationsMatchTheirFormulas) {
  for (const bool directed : {false, true}) {
    EdgeList edges = random_edges(25, 60, directed, 8);
    edges.num_nodes = 27;  // the last two have degree 0
    const Graph graph = Graph::from_edges(edges);
    const at::Tensor a = graph.to_dense();
    const auto inverse = [](const at::Tensor& sums, double power) {
      return sums.pow(power).masked_fill(sums.eq(0), 0);
    };
    const at::Tensor out = a.abs().sum(1), in = a.abs().sum(0);
    const at::Tensor symmetric = inverse(out, -0.5).unsqueeze(1) * a * inverse(in, -0.5).unsqueeze(0);
    EXPECT_TRUE(normalise(graph, Normalisation::symmetric).to_dense().allclose(symmetric, 1e-6, 1e-9));
    EXPECT_EQ(normalise(graph, Normalisation::symmetric).is_symmetric(), !directed);
    EXPECT_TRUE(normalise(graph, Normalisation::random_walk)
                    .to_dense()
                    .allclose(inverse(out, -1).unsqueeze(1) * a, 1e-6, 1e-9));
    const at::Tensor degree = a.ne(0).sum(1, true);
    const double largest = (a.abs() * degree).max().item<double>();
    EXPECT_TRUE(normalise(graph, Normalisation::max_degree).to_dense().allclose(a / largest, 1e-6, 1e-9));
    EXPECT_TRUE(normalise(graph, Normalisation::none).to_dense().equal(a));
  }
  EdgeList zero;
  zero.num_nodes = 2;
  zero.source = {0};
  zero.target = {1};
  zero.weight = {0};
  for (const auto how : {Normalisation::symmetric, Normalisation::random_walk, Normalisation::max_degree}) {
    EXPECT_TRUE(normalise(Graph::from_edges(zero), how).weight.eq(0).all().item<bool>());
  }
}

TEST(Graph, SummaryAndComponents) {
  const GraphSummary summary = summarise(Graph::from_edges(irregular(false)));
  EXPECT_EQ(summary.nodes, 6);
  EXPECT_EQ(summary.edges, 4);
  EXPECT_EQ(summary.self_loops, 1);
  EXPECT_EQ(summary.isolated, 1);
  EXPECT_EQ(summary.components, 3);
  EXPECT_EQ(summary.degree_max, 3);
  EXPECT_EQ(summary.degree_min, 0);
  EXPECT_DOUBLE_EQ(summary.degree_mean, 7.0 / 6);
  EXPECT_EQ(summary.weight_min, -1);
  EXPECT_EQ(summary.weight_max, 5);
  // Against reachability by repeated squaring of the symmetrised pattern.
  const Graph graph = Graph::from_edges(random_edges(60, 45, true, 12));
  const at::Tensor a = graph.to_dense().ne(0).to(at::kDouble);
  at::Tensor reach = (a + a.t() + at::eye(60, at::kDouble)).ne(0).to(at::kDouble);
  for (int i = 0; i < 6; ++i) reach = reach.matmul(reach).ne(0).to(at::kDouble);
  const ComponentLabels components = weak_components(graph.view());
  for (int i = 0; i < 60; ++i) {
    for (int j = 0; j < 60; ++j) {
      EXPECT_EQ(components.label[i] == components.label[j], reach[i][j].item<double>() > 0);
    }
  }
}

TEST(Graph, PermutationsCanBeUndone) {
  const Graph graph = Graph::from_edges(random_edges(50, 80, true, 14));
  const at::Tensor order = reverse_cuthill_mckee(graph), dense = graph.to_dense();
  const Graph moved = graph.permuted(order);
  EXPECT_TRUE(moved.to_dense().equal(dense.index_select(0, order).index_select(1, order)));
  EXPECT_TRUE(moved.permuted(inverse_order(order)).to_dense().equal(dense));
  EXPECT_THAT(error_of([&] { graph.permuted(order.clone().fill_(3)); }), HasSubstr("node 3 comes twice"));
  EXPECT_THAT(error_of([&] { graph.permuted(order.slice(0, 1)); }), HasSubstr("expected order [50]"));
}

TEST(Graph, ReverseCuthillMckeeRestoresTheBandOfAShuffledPath) {
  const std::int64_t n = 500;
  at::Tensor shuffle = at::zeros({n}, at::kLong);
  for (std::int64_t i = 0; i < n; ++i) shuffle[i] = i * 173 % n;
  const Graph ordered = path_graph(n).permuted(shuffle);
  const Graph restored = ordered.permuted(reverse_cuthill_mckee(ordered));
  EXPECT_TRUE(restored.to_dense().equal(path_graph(n).to_dense()));
}

TEST(Graph, MortonOrder) {
  // The four quadrants of the unit square, in Z order, with a tie.
  const at::Tensor points =
      at::tensor({1.0f, 1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f}).view({5, 2});
  EXPECT_TRUE(morton_order(points).equal(at::tensor({1, 4, 2, 3, 0}, at::kLong)));
  EXPECT_TRUE(morton_order(at::zeros({3, 3})).equal(at::tensor({0, 1, 2}, at::kLong)));
  EXPECT_EQ(morton_order(at::zeros({0, 3})).numel(), 0);
  EXPECT_THAT(error_of([] { morton_order(at::zeros({3, 4})); }), HasSubstr("D from 1 to 3, got D = 4"));
}

TEST(Graph, ViewAndWeightAreChecked) {
  Graph graph = path_graph(3);
  EXPECT_THAT(error_of([&] { graph.with_weight(at::zeros({3})); }),
              HasSubstr("expected weight [4] of float32"));
  graph.weight = graph.weight.to(at::kDouble);
  EXPECT_THAT(error_of([&] { graph.view(); }), HasSubstr("got Double [4] on cpu"));
}

}  // namespace
}  // namespace topomask
