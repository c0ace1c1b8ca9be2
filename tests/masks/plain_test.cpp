// Masks that are given by entries, factors or tables: none, causal, shortest path, degree, neighbours,
// learned features, dense and sparse matrices.
#include <c10/core/InferenceMode.h>

#include <numbers>

#include "dense_oracles.h"
#include "gradcheck.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"

namespace topomask::oracle {
namespace {

Graph small_directed_graph() {
  return graph_of(6, {0, 1, 2, 2, 4, 4}, {1, 2, 0, 3, 3, 4}, true);
}

std::vector<Graph> graphs() {
  return {path_graph(1), karate_club(), small_directed_graph(), graph_of(5, {0, 3}, {1, 4}),
          grid_graph({3, 4})};
}

TEST(NoMask, AllOnes) {
  for (const std::int64_t n : {1, 2, 9}) {
    expect_matches(NoMask(n), at::ones({1, n, n}, at::kDouble));
    check_gradients(NoMask(n), 2);
  }
  expect_error([] { NoMask(-1); }, {"NoMask", "num_nodes", "-1"});
}

TEST(CausalMask, LowerTriangle) {
  for (const std::int64_t n : {1, 2, 9}) {
    expect_matches(CausalMask(n), at::ones({1, n, n}, at::kDouble).tril());
    check_gradients(CausalMask(n), 2);
  }
}

TEST(ShortestPathMask, MatchesTheDenseMatrix) {
  for (const Graph& graph : graphs()) {
    const auto length = path_lengths(graph);
    for (const std::int64_t max_distance : {0, 2, 6}) {
      const at::Tensor table = test_values({2, max_distance + 2});
      const at::Tensor oracle =
          matrix_of(2, graph.num_nodes(), [&](std::int64_t h, std::int64_t i, std::int64_t j) {
            const double hops = std::min(length[i][j], static_cast<double>(max_distance + 1));
            return table[h][static_cast<std::int64_t>(hops)].item<double>();
          });
      expect_matches(ShortestPathMask(graph, table), oracle);
    }
  }
}

TEST(ShortestPathMask, Gradients) {
  check_gradients(ShortestPathMask(small_directed_graph(), parameter({2, 4})));
  check_gradients(ShortestPathMask(grid_graph({2, 3}), parameter({1, 3})), 2);
}

TEST(ShortestPathMask, ChecksItsArguments) {
  const Graph graph = path_graph(100);
  expect_error(
      [&] {
        ShortestPathMask(graph, test_values({1, 4}), 9999);
      },
      {"100 nodes", "10000 bytes", "9999"});
  EXPECT_NO_THROW(ShortestPathMask(graph, test_values({1, 4}), 10000));
  EXPECT_NO_THROW(ShortestPathMask(graph, test_values({1, 256})));
  expect_error([&] { ShortestPathMask(graph, test_values({1, 257})); }, {"table", "0 to 254", "257"});
  expect_error(
      [&] {
        ShortestPathMask(graph, test_values({1, 1}));
      },
      {"table", "max_distance + 2", "[1, 1]"});
  expect_error([&] { ShortestPathMask(graph, test_values({4})); }, {"table", "[H, max_distance + 2]", "[4]"});
}

TEST(DegreeMask, MatchesTheDenseMatrix) {
  for (const Graph& graph : graphs()) {
    for (const std::int64_t max_degree : {0, 3, 20}) {
      const at::Tensor logits = test_values({2, max_degree + 1});
      const auto z = [&](std::int64_t h, std::int64_t node) {
        const std::int64_t degree = std::min(graph.view().degree(node), max_degree);
        return 1 / (1 + std::exp(-logits[h][degree].item<double>()));
      };
      const at::Tensor oracle =
          matrix_of(2, graph.num_nodes(), [&](std::int64_t h, std::int64_t i, std::int64_t j) {
            return std::sin(std::numbers::pi / 4 * (z(h, i) + z(h, j)));
          });
      const DegreeMask mask(graph, logits);
      expect_matches(mask, oracle);
      EXPECT_EQ(mask.factors().left.size(2), 2);
    }
  }
}

TEST(DegreeMask, Gradients) {
  check_gradients(DegreeMask(small_directed_graph(), parameter({2, 3})));
  check_gradients(DegreeMask(grid_graph({2, 3}), parameter({1, 6})), 2);
  expect_error(
      [] {
        DegreeMask(path_graph(3), test_values({2, 0}));
      },
      {"logits", "max_degree >= 0", "[2, 0]"});
}

TEST(NeighbourMask, MatchesTheDenseMatrix) {
  for (const Graph& graph : graphs()) {
    const auto length = path_lengths(graph);
    for (const int hops : {0, 1, 2, 40}) {
      for (const bool self : {true, false}) {
        const at::Tensor oracle =
            matrix_of(1, graph.num_nodes(), [&](std::int64_t, std::int64_t i, std::int64_t j) {
              return length[i][j] <= hops && (i != j || self) ? 1.0 : 0.0;
            });
        expect_matches(NeighbourMask(graph, hops, self), oracle);
      }
    }
  }
  check_gradients(NeighbourMask(small_directed_graph(), 2), 2);
  expect_error([] { NeighbourMask(path_graph(3), -1); }, {"hops", "at least 0", "-1"});
}

TEST(LearnedFeaturesMask, MatchesTheDenseMatrix) {
  for (const std::int64_t rank : {1, 3, 6}) {
    const at::Tensor features = parameter({2, 6, rank});
    const at::Tensor f = features.detach();
    expect_matches(LearnedFeaturesMask(features), at::matmul(f, f.transpose(1, 2)));
    check_gradients(LearnedFeaturesMask(features));
  }
  check_gradients(LearnedFeaturesMask(parameter({1, 1, 1})), 2);
  expect_error([] { LearnedFeaturesMask(test_values({3, 4})); }, {"features", "[H, N, R]", "[3, 4]"});
}

TEST(DenseMask, MatchesTheMatrix) {
  const at::Tensor heads = parameter({3, 4, 4}), one = parameter({4, 4});
  expect_matches(DenseMask(heads), heads.detach());
  expect_matches(DenseMask(one), one.detach().unsqueeze(0));
  check_gradients(DenseMask(heads));
  check_gradients(DenseMask(one), 2);
  expect_error([] { DenseMask(test_values({3, 4})); }, {"matrix", "[N, N] or [H, N, N]", "[3, 4]"});
  expect_error([] { DenseMask(test_values({2, 3, 4})); }, {"matrix", "[H, N, N]", "[2, 3, 4]"});
  expect_error([] { DenseMask(at::ones({3, 3}, at::kLong)); }, {"matrix", "float32 or float64", "Long"});
  expect_error([] { DenseMask(at::Tensor()); }, {"matrix", "undefined"});
}

std::shared_ptr<const SparsePattern> small_pattern() {
  return std::make_shared<const SparsePattern>(SparsePattern::from_rows(
      at::tensor({0, 2, 2, 5, 6}, at::kLong), at::tensor({0, 3, 0, 1, 2, 1}, at::kInt)));
}

TEST(SparseMask, MatchesTheDenseMatrix) {
  const at::Tensor values = parameter({2, 6});
  at::Tensor oracle = at::zeros({2, 4, 4}, at::kDouble);
  const int row[] = {0, 0, 2, 2, 2, 3}, col[] = {0, 3, 0, 1, 2, 1};
  for (int h = 0; h < 2; ++h)
    for (int e = 0; e < 6; ++e) oracle[h][row[e]][col[e]] = values.detach()[h][e];
  expect_matches(SparseMask(small_pattern(), values), oracle);
  check_gradients(SparseMask(small_pattern(), values));
  check_gradients(SparseMask(small_pattern(), parameter({1, 6})), 2);
  expect_error([] { SparseMask(small_pattern(), test_values({2, 5})); }, {"values", "[H, 6]", "[2, 5]"});
  expect_error([] { SparseMask(nullptr, test_values({2, 5})); }, {"pattern", "null"});
  const auto wide = std::make_shared<const SparsePattern>(
      SparsePattern::from_rows(at::tensor({0, 1, 2}, at::kLong), at::tensor({0, 4}, at::kInt), 5));
  expect_error(
      [&] {
        SparseMask(wide, test_values({1, 2}));
      },
      {"expected a square pattern, got 2 rows and 5 columns"});
}

// Where the entries stand is kept by whoever asks first, also where nothing is learned.
TEST(SparseMask, LearnsAfterItsMatrixWasLookedAt) {
  const SparseMask mask(small_pattern(), parameter({2, 6}));
  {
    const c10::InferenceMode nothing_is_learned;
    mask.dense(at::kDouble);
  }
  check_gradients(mask);
}

TEST(SparsePattern, Transposes) {
  const auto pattern = small_pattern();
  EXPECT_TRUE(pattern->transposed_ptr.equal(at::tensor({0, 2, 4, 5, 6}, at::kLong)));
  EXPECT_TRUE(pattern->transposed_row.equal(at::tensor({0, 2, 2, 3, 2, 0}, at::kInt)));
  EXPECT_TRUE(pattern->transposed_entry.equal(at::tensor({0, 2, 3, 5, 4, 1}, at::kLong)));
  EXPECT_EQ(SparsePattern::from_rows(at::zeros({1}, at::kLong), at::zeros({0}, at::kInt)).num_nodes(), 0);
}

TEST(SparsePattern, RejectsUnsoundRows) {
  const auto make = [](std::vector<std::int64_t> row_ptr, std::vector<std::int32_t> col) {
    return [=] { SparsePattern::from_rows(at::tensor(row_ptr, at::kLong), at::tensor(col, at::kInt)); };
  };
  expect_error(make({0, 2, 1, 3}, {0, 1, 2}), {"row_ptr decreases", "row 1"});
  expect_error(make({1, 2, 3, 3}, {0, 1, 2}), {"start at 0"});
  expect_error(make({0, 2, 3, 9}, {0, 1, 2}), {"past the columns", "row 2"});
  expect_error(make({0, 1, 1, 2}, {0, 1, 2}), {"ends before"});
  expect_error(make({0, 2, 2, 3}, {0, 3, 2}), {"out of range", "row 0"});
  expect_error(make({0, 2, 2, 3}, {0, -1, 2}), {"out of range", "row 0"});
  expect_error(make({0, 2, 2, 3}, {1, 1, 2}), {"do not ascend", "row 0"});
  expect_error([] { SparsePattern::from_rows(at::zeros({2}, at::kInt), at::zeros({0}, at::kInt)); },
               {"row_ptr", "int64", "Int [2]"});
}

TEST(Masks, RejectInputsOfTheWrongShape) {
  const auto rejects = [](const Mask& mask, const at::Tensor& x, std::initializer_list<const char*> parts) {
    expect_error([&] { mask.multiply(x); }, parts);
    expect_error([&] { mask.multiply(x, true); }, parts);
  };
  const LearnedFeaturesMask two_heads(test_values({2, 5, 3}));
  rejects(two_heads, test_values({3, 5, 1}),
          {"learned-features", "x must be", "[2, 5, columns]", "[3, 5, 1]"});
  rejects(two_heads, test_values({2, 4, 1}), {"[2, 5, columns]", "[2, 4, 1]"});
  rejects(two_heads, test_values({2, 5}), {"[2, 5, columns]", "[2, 5]"});
  rejects(two_heads, at::ones({2, 5, 1}, at::kLong), {"float32 or float64", "Long"});
  rejects(two_heads, at::Tensor(), {"undefined"});
  rejects(NeighbourMask(path_graph(5)), test_values({2, 4, 1}), {"neighbours", "[heads, 5, columns]"});
  expect_error([] { NoMask(3).entries(); }, {"'none'", "no sparse entries"});
  expect_error([] { CausalMask(3).factors(); }, {"'causal'", "no low-rank factors"});
  expect_error([] { NoMask(3).dense(at::kHalf); }, {"'none'", "float32 or float64", "Half"});
}

}  // namespace
}  // namespace topomask::oracle
