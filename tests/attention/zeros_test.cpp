// Zeros of M: what the mask leaves out does not reach the output, but it has a gradient, in every engine.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/entry_oracle.h"
#include "support/gradients.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"

namespace topomask {
namespace {

struct ZeroCase {
  Engine engine;
  AttentionKind kind;
  std::int64_t d;
};

void PrintTo(const ZeroCase& c, std::ostream* to) {
  *to << "engine " << static_cast<int>(c.engine) << " kind " << static_cast<int>(c.kind) << " d " << c.d;
}

std::vector<ZeroCase> cases() {
  std::vector<ZeroCase> all;
  for (const Engine engine : {Engine::mask, Engine::dense, Engine::feature}) {
    for (const std::int64_t d : {3, 8}) {  // 8 float64 are a whole vector on some machines
      all.push_back({engine, AttentionKind::linear, d});
      if (engine != Engine::feature) all.push_back({engine, AttentionKind::softmax, d});
    }
  }
  return all;
}

AttentionOptions options_of(const ZeroCase& c) {
  AttentionOptions options;
  options.kind = c.kind;
  options.engine = c.engine;
  return options;
}

SparsePattern grid_pattern(int hops) {
  return *NeighbourMask(grid_graph({3, 2}), hops).entries().front().pattern;
}

// Away from the kink of ReLU at 0 and from features that are all epsilon.
at::Tensor operand(std::int64_t channels) {
  return at::rand({2, 2, 6, channels}, at::kDouble) + 0.1;
}

class ZerosOfTheMask : public ::testing::TestWithParam<ZeroCase> {};

// Explicit zeros of a sparse mask, in half of the entries and in whole rows.
TEST_P(ZerosOfTheMask, HaveTheGradientOfFiniteDifferences) {
  const ZeroCase& c = GetParam();
  at::manual_seed(4);
  const auto pattern = std::make_shared<const SparsePattern>(grid_pattern(2));
  const at::Tensor weight = operand(c.d);
  for (const std::int64_t value_heads : {1, 2}) {
    at::Tensor values = at::rand({value_heads, pattern->nnz()}, at::kDouble) + 0.2;
    values.slice(1, 0, pattern->nnz(), 2).zero_();
    oracle::expect_gradients(
        [&](const auto& in) {
          const auto mask = std::make_shared<SparseMask>(pattern, in[3]);
          return (attention(in[0], in[1], in[2], mask, options_of(c)) * weight).sum();
        },
        {operand(c.d), operand(c.d), operand(c.d), values});
  }
}

TEST_P(ZerosOfTheMask, HaveTheGradientOfFiniteDifferencesInADenseMask) {
  const ZeroCase& c = GetParam();
  if (c.engine == Engine::mask) GTEST_SKIP() << "a dense mask has no entries";
  at::manual_seed(5);
  const at::Tensor weight = operand(c.d);
  for (const std::int64_t mask_heads : {1, 2}) {
    at::Tensor matrix = at::rand({mask_heads, 6, 6}, at::kDouble) + 0.2;
    matrix.masked_fill_(at::rand({mask_heads, 6, 6}) < 0.4, 0).diagonal(0, 1, 2).fill_(1);
    oracle::expect_gradients(
        [&](const auto& in) {
          const auto mask = std::make_shared<DenseMask>(in[3]);
          return (attention(in[0], in[1], in[2], mask, options_of(c)) * weight).sum();
        },
        {operand(c.d), operand(c.d), operand(c.d), matrix});
  }
}

INSTANTIATE_TEST_SUITE_P(All, ZerosOfTheMask, ::testing::ValuesIn(cases()));

// The far entry of a shortest-path mask may start at 0, and must be able to leave it.
TEST(ShortestPaths, LearnTheirFarEntryFromZero) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({1, 1, 6, 4}, at::kDouble), weight = at::randn({1, 1, 6, 4}, at::kDouble);
  AttentionOptions options;
  options.kind = AttentionKind::softmax;
  options.engine = Engine::dense;
  oracle::expect_gradients(
      [&](const auto& in) {
        const auto mask = std::make_shared<ShortestPathMask>(path_graph(6), in[0]);
        return (attention(x, x, x, mask, options) * weight).sum();
      },
      {at::tensor({1.0, 0.5, 0.0}, at::kDouble).unsqueeze(0)});
}

// A zero of M whose exponent is far above all others of its row: the output does not feel it, and its
// gradient is what float64 says as long as a float32 can hold it.
TEST(MaskedOutGiants, NeitherUnderflowTheRestNorOverflowTheirGradient) {
  const auto pattern = std::make_shared<const SparsePattern>(grid_pattern(2));
  for (const Engine engine : {Engine::mask, Engine::dense}) {
    for (const double height : {20.0, 100.0, 150.0}) {
      at::manual_seed(7);
      oracle::Tensors operands;
      for (int i = 0; i < 3; ++i) operands.push_back(at::randn({1, 1, 6, 4}));
      operands[0].fill_(1);
      operands[1].slice(2, 3, 4).fill_(height / 2);  // <q, k> / sqrt(4) = height at node 3
      operands.push_back(at::rand({1, pattern->nnz()}) + 0.2);
      operands[3].masked_fill_((pattern->col == 3).unsqueeze(0), 0);
      const double small = std::exp(-height / 2);  // brings the gradient at the giant back into range
      AttentionOptions options;
      options.kind = AttentionKind::softmax;
      options.engine = engine;
      oracle::Tensors wide;
      for (const at::Tensor& x : operands) wide.push_back(x.to(at::kDouble));
      const oracle::Tensors expected = oracle::with_gradients(wide, [&](const oracle::Tensors& x) {
        return oracle::entry_attention(x, *pattern, options) * small;
      });
      const oracle::Tensors actual = oracle::with_gradients(operands, [&](const oracle::Tensors& x) {
        return attention(x[0], x[1], x[2], std::make_shared<SparseMask>(pattern, x[3]), options) * small;
      });
      for (int i = 0; i < 5; ++i) {
        const double error = (actual[i].to(at::kDouble) - expected[i]).norm().item<double>();
        EXPECT_LE(error, 1e-4 * expected[i].norm().item<double>())
            << "engine " << static_cast<int>(engine) << " height " << height << " tensor " << i;
      }
    }
  }
}

}  // namespace
}  // namespace topomask
