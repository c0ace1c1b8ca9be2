// Sums, scalings, global tokens and block-diagonal batches of masks of every kind.
#include <c10/core/InferenceMode.h>

#include "dense_oracles.h"
#include "gradcheck.h"
#include "support/pattern_per_head.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"

namespace topomask::oracle {
namespace {

// Two heads, sparse.
MaskPtr sparse(int salt = 0) {
  auto pattern = std::make_shared<const SparsePattern>(SparsePattern::from_rows(
      at::tensor({0, 2, 2, 5, 6}, at::kLong), at::tensor({0, 3, 0, 1, 2, 1}, at::kInt)));
  return std::make_shared<SparseMask>(pattern, parameter({2, 6}, salt));
}
// One head, sparse, overlapping with the other one.
MaskPtr neighbours() {
  return std::make_shared<NeighbourMask>(path_graph(4));
}
MaskPtr factors() {
  return std::make_shared<LearnedFeaturesMask>(parameter({2, 4, 3}, 5));
}
MaskPtr causal() {
  return std::make_shared<CausalMask>(4);
}

MaskPtr pattern_per_head() {
  std::vector<SparseEntries> entries;
  const at::Tensor values = parameter({2, 3}, 6);
  for (const int h : {0, 1}) {
    const auto pattern = std::make_shared<const SparsePattern>(SparsePattern::from_rows(
        at::tensor({0, 1, 2, 2, 3}, at::kLong), at::tensor({h, 2, h + 1}, at::kInt)));
    entries.push_back({pattern, values.narrow(0, h, 1).detach().requires_grad_(true)});
  }
  return std::make_shared<testing::PatternPerHead>(std::move(entries));
}

at::Tensor dense_of(const MaskPtr& mask) {
  return mask->dense(at::kDouble).detach();
}

TEST(SumMask, MatchesTheDenseMatrix) {
  const auto check_sum = [](const std::vector<MaskPtr>& masks) {
    at::Tensor oracle = at::zeros({1, 4, 4}, at::kDouble);
    for (const MaskPtr& mask : masks) oracle = oracle + dense_of(mask);
    const SumMask sum(masks);
    expect_matches(sum, oracle);
    check_gradients(sum);
  };
  check_sum({sparse()});
  check_sum({sparse(), neighbours()});
  check_sum({sparse(), sparse(1), pattern_per_head(), neighbours()});
  check_sum({factors(), std::make_shared<NoMask>(4)});
  check_sum({causal(), sparse(), factors()});
  check_sum({causal(), std::make_shared<NoMask>(4)});
}

TEST(SumMask, EntriesFollowTheParameters) {
  const at::Tensor values = at::ones({1, 3}, at::kDouble);
  auto pattern = std::make_shared<const SparsePattern>(
      SparsePattern::from_rows(at::tensor({0, 1, 3}, at::kLong), at::tensor({0, 0, 1}, at::kInt)));
  const auto part = std::make_shared<SparseMask>(pattern, values);
  const SumMask twice({part, part});
  EXPECT_EQ(twice.profile().entries, 6);  // an upper bound before the patterns are merged
  EXPECT_EQ(twice.entries()[0].values.sum().item<double>(), 6);
  EXPECT_EQ(twice.profile().entries, 3);
  values.fill_(5);
  EXPECT_EQ(twice.entries()[0].values.sum().item<double>(), 30);
  EXPECT_EQ(twice.entries()[0].pattern, twice.entries()[0].pattern);
  EXPECT_EQ(twice.parameters().size(), 2u);  // once for each part
}

TEST(ScaledMask, MatchesTheDenseMatrix) {
  for (const MaskPtr& mask : {sparse(), neighbours(), factors(), causal(), MaskPtr(pattern_per_head())}) {
    const at::Tensor one = parameter({4}, 1), heads = parameter({2, 4}, 2);
    for (const auto& [row, column] :
         {std::pair{one, heads}, {heads, one}, {heads, at::Tensor()}, {at::Tensor(), one}}) {
      const auto as_matrix = [](const at::Tensor& scale) {
        if (!scale.defined()) return at::eye(4, at::kDouble).unsqueeze(0);
        return at::diag_embed(scale.detach().view({-1, 4}));
      };
      at::Tensor oracle = at::matmul(at::matmul(as_matrix(row), dense_of(mask)), as_matrix(column));
      const ScaledMask scaled(mask, row, column);
      expect_matches(scaled, oracle.expand({scaled.heads(), 4, 4}));
      check_gradients(scaled);
    }
  }
  expect_error([] { ScaledMask(causal(), test_values({5}), at::Tensor()); },
               {"row_scale", "[4] or [H, 4]", "[5]"});
  expect_error(
      [] {
        ScaledMask(causal(), at::Tensor(), test_values({2, 2, 4}));
      },
      {"column_scale", "[2, 2, 4]"});
  expect_error([] { ScaledMask(sparse(), test_values({3, 4}), at::Tensor()); }, {"heads", "2, 3 and 1"});
  expect_error([] { ScaledMask(nullptr, test_values({3}), at::Tensor()); }, {"mask must be given"});
}

at::Tensor dense_with_global(const MaskPtr& mask, std::int64_t global) {
  const at::Tensor base = dense_of(mask);
  return matrix_of(mask->heads(), 4 + global, [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    return i < global || j < global ? 1.0 : base[h][i - global][j - global].item<double>();
  });
}

TEST(GlobalTokensMask, MatchesTheDenseMatrix) {
  for (const MaskPtr& mask : {sparse(), neighbours(), factors(), causal(), MaskPtr(pattern_per_head())}) {
    for (const std::int64_t global : {0, 1, 3}) {
      const GlobalTokensMask with_global(mask, global);
      expect_matches(with_global, dense_with_global(mask, global));
      check_gradients(with_global);
    }
  }
  expect_error([] { GlobalTokensMask(causal(), -1); }, {"num_global", "at least 0", "-1"});
  expect_error([] { GlobalTokensMask(nullptr, 1); }, {"mask must be given"});
}

TEST(GlobalTokensMask, TakesOverPatterns) {
  const MaskPtr mask = sparse();
  const GlobalTokensMask first(mask, 2);
  const auto pattern = first.entries()[0].pattern;
  // A step later: other values, the same pattern.
  const MaskPtr later = mask->with_parameters({parameter({2, 6}, 7)});
  const GlobalTokensMask second(later, 2, first.shared_patterns());
  EXPECT_EQ(second.entries()[0].pattern, pattern);
  expect_matches(second, dense_with_global(later, 2));
  // What does not fit is made anew.
  const GlobalTokensMask other(neighbours(), 2, first.shared_patterns());
  EXPECT_NE(other.entries()[0].pattern, pattern);
  expect_matches(other, dense_with_global(neighbours(), 2));
  const GlobalTokensMask per_head(pattern_per_head(), 2, first.shared_patterns());
  expect_matches(per_head, dense_with_global(pattern_per_head(), 2));
  expect_matches(GlobalTokensMask(mask, 3, first.shared_patterns()), dense_with_global(mask, 3));
  expect_matches(first, dense_with_global(mask, 2));
}

TEST(BlockDiagonalMask, MatchesTheDenseMatrix) {
  const auto check_blocks = [](const std::vector<MaskPtr>& masks, const std::vector<std::int64_t>& ptr) {
    const BlockDiagonalMask blocks(masks);
    EXPECT_EQ(blocks.blocks(), ptr);
    at::Tensor oracle = at::zeros({blocks.heads(), ptr.back(), ptr.back()}, at::kDouble);
    for (std::size_t b = 0; b < masks.size(); ++b) {
      const std::int64_t rows = ptr[b + 1] - ptr[b];
      oracle.narrow(1, ptr[b], rows).narrow(2, ptr[b], rows).copy_(dense_of(masks[b]));
    }
    expect_matches(blocks, oracle);
    check_gradients(blocks);
  };
  const MaskPtr single = std::make_shared<NeighbourMask>(path_graph(1));
  check_blocks({sparse(), single, neighbours()}, {0, 4, 5, 9});
  check_blocks({causal(), factors(), single}, {0, 4, 8, 9});
  check_blocks({pattern_per_head(), sparse()}, {0, 4, 8});
  check_blocks({causal()}, {0, 4});
}

TEST(Combinators, Nest) {
  const MaskPtr sum = std::make_shared<SumMask>(std::vector<MaskPtr>{sparse(), neighbours()});
  const MaskPtr scaled = std::make_shared<ScaledMask>(sum, parameter({4}, 3), at::Tensor());
  const MaskPtr global = std::make_shared<GlobalTokensMask>(scaled, 1);
  const BlockDiagonalMask batch({global, neighbours()});
  at::Tensor oracle = at::zeros({2, 9, 9}, at::kDouble);
  oracle.narrow(1, 0, 1).narrow(2, 0, 5).fill_(1);
  oracle.narrow(1, 0, 5).narrow(2, 0, 1).fill_(1);
  const MaskPtr first = sparse();
  const at::Tensor inner = dense_of(first) + dense_of(neighbours());
  oracle.narrow(1, 1, 4).narrow(2, 1, 4).copy_(inner * test_values({4}, 3).view({1, 4, 1}));
  oracle.narrow(1, 5, 4).narrow(2, 5, 4).copy_(dense_of(neighbours()));
  expect_matches(batch, oracle);
  check_gradients(batch);
  EXPECT_EQ(batch.name(), "block-diagonal(2 x global-tokens(scaled(sum(sparse, neighbours)), 1))");
}

// Patterns are merged at the first call, which may be one without gradients.
TEST(Combinators, LearnAfterACallInInferenceMode) {
  const auto path = std::make_shared<NeighbourMask>(path_graph(4));
  for (const MaskPtr& mask :
       {MaskPtr(std::make_shared<GlobalTokensMask>(sparse(), 2)),
        MaskPtr(std::make_shared<SumMask>(std::vector<MaskPtr>{sparse(), path})),
        MaskPtr(std::make_shared<BlockDiagonalMask>(std::vector<MaskPtr>{pattern_per_head(), sparse()}))}) {
    std::vector<SparseEntries> first;
    {
      const c10::InferenceMode inference;
      first = mask->entries();
    }
    const std::vector<SparseEntries> entries = mask->entries();
    ASSERT_EQ(entries.size(), first.size());
    EXPECT_EQ(entries[0].pattern, first[0].pattern);  // merged once
    EXPECT_TRUE(entries[0].values.equal(first[0].values));
    check_gradients(*mask);
  }
}

// Rows, columns and values that lie within larger tensors, with steps of their own.
TEST(Combinators, TakeViewsOfLargerTensors) {
  const at::Tensor row_ptr = at::tensor({7, 0, 2, 2, 5, 6, 9}, at::kLong).narrow(0, 1, 5),
                   col = at::tensor({9, 9, 0, 9, 3, 9, 0, 9, 1, 9, 2, 9, 1, 9}, at::kInt).slice(0, 2, 14, 2);
  const auto pattern = std::make_shared<const SparsePattern>(SparsePattern::from_rows(row_ptr, col));
  const at::Tensor values = test_values({8, 3}).narrow(0, 1, 6).narrow(1, 1, 2).t();  // [2, 6]
  ASSERT_FALSE(values.is_contiguous());
  const MaskPtr view = std::make_shared<SparseMask>(pattern, values);
  const auto whole = std::make_shared<const SparsePattern>(SparsePattern::from_rows(
      at::tensor({0, 2, 2, 5, 6}, at::kLong), at::tensor({0, 3, 0, 1, 2, 1}, at::kInt)));
  const MaskPtr plain = std::make_shared<SparseMask>(whole, values.contiguous());
  EXPECT_TRUE(dense_of(view).equal(dense_of(plain)));
  expect_matches(GlobalTokensMask(view, 2), dense_with_global(plain, 2));
  expect_matches(SumMask({view, neighbours()}), dense_of(plain) + dense_of(neighbours()));
  const at::Tensor blocks = at::zeros({2, 8, 8}, at::kDouble);
  blocks.narrow(1, 0, 4).narrow(2, 0, 4).copy_(dense_of(plain));
  blocks.narrow(1, 4, 4).narrow(2, 4, 4).copy_(dense_of(plain));
  expect_matches(BlockDiagonalMask({view, plain}), blocks);
}

TEST(Combinators, CheckTheirParts) {
  expect_error([] { SumMask({}); }, {"SumMask", "at least one"});
  expect_error([] { SumMask({causal(), nullptr}); }, {"masks[1]", "null"});
  expect_error([] { SumMask({causal(), std::make_shared<NoMask>(5)}); }, {"4 nodes", "'none' has 5"});
  const auto three = std::make_shared<LearnedFeaturesMask>(test_values({3, 4, 1}));
  expect_error([&] { SumMask({sparse(), three}); }, {"1 head or 2 heads", "'learned-features' has 3"});
  expect_error([&] { BlockDiagonalMask({sparse(), three}); }, {"BlockDiagonalMask", "has 3"});
  expect_error([&] { BlockDiagonalMask({}); }, {"BlockDiagonalMask", "at least one"});
}

}  // namespace
}  // namespace topomask::oracle
