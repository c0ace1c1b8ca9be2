#include <cmath>

#include "attention/nan_cases.h"
#include "topomask/graph_builders.h"

namespace topomask {
namespace {

SparsePattern path_pattern(std::int64_t nodes, int hops) {
  return *NeighbourMask(path_graph(nodes), hops).entries().front().pattern;
}

class NotANumber : public ::testing::TestWithParam<testing::NanCase> {};

TEST_P(NotANumber, StaysOne) {
  // Some numbers of channels are kept in registers, depending on the machine, and 9 are not.
  for (const std::int64_t d : {64, 32, 16, 9})
    testing::expect_nan_kept(GetParam(), path_pattern(9, 2), d, {at::kFloat, at::kDouble, at::kBFloat16},
                             at::kCPU);
}

INSTANTIATE_TEST_SUITE_P(All, NotANumber, ::testing::ValuesIn(testing::nan_cases()));

// A row whose normaliser is NaN is not a row without a normaliser.
TEST(NotANumberInANormaliser, IsNotGuarded) {
  const auto pattern = std::make_shared<const SparsePattern>(path_pattern(3, 1));
  for (const Engine engine : {Engine::mask, Engine::dense, Engine::feature}) {
    AttentionOptions options;
    options.engine = engine;
    at::Tensor values = at::ones({1, pattern->nnz()}, at::kDouble);
    values[0][0] = std::nan("");
    const at::Tensor x = at::ones({1, 1, 3, 4}, at::kDouble);
    at::Tensor v = x.clone().requires_grad_();
    const at::Tensor out = attention(x, x, v, std::make_shared<SparseMask>(pattern, values), options);
    EXPECT_TRUE(out[0][0][0].isnan().all().item<bool>());
    out.sum().backward();
    EXPECT_TRUE(v.grad()[0][0][1].isnan().all().item<bool>());  // by way of row 0
  }
}

}  // namespace
}  // namespace topomask
