// All head sizes, dtypes, kinds and engines: the result and every gradient against float64. Operands and
// gradients of unusual size come too: what is rounded to 16 bits on the way must be in range wherever the
// results are.
#include <cmath>

#include "attention/entry_oracle.h"
#include "gpu.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"

namespace topomask {
namespace {

using oracle::Tensors;

struct Case {
  Engine engine;
  AttentionKind kind;
  FeatureMapKind features;
  at::ScalarType dtype;
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << "engine " << static_cast<int>(c.engine) << " kind " << static_cast<int>(c.kind) << " features "
      << static_cast<int>(c.features) << " " << c10::toString(c.dtype);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const Engine engine : {Engine::dense, Engine::mask, Engine::feature}) {
      all.push_back({engine, AttentionKind::linear, FeatureMapKind::relu, dtype});
      all.push_back({engine, AttentionKind::linear, FeatureMapKind::identity, dtype});
      if (engine != Engine::feature)
        all.push_back({engine, AttentionKind::softmax, FeatureMapKind::identity, dtype});
    }
  }
  return all;
}

double tolerance_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-10 : dtype == at::kFloat ? 1e-4 : dtype == at::kHalf ? 4e-3 : 3e-2;
}

struct Sizes {
  double queries, keys, grad;
};

void compare(const Case& c, const SparsePattern& pattern, std::int64_t d, const Sizes& sizes) {
  SCOPED_TRACE(::testing::Message() << "N " << pattern.num_nodes() << " d " << d << " sizes " << sizes.queries
                                    << " " << sizes.keys << " " << sizes.grad);
  at::manual_seed(static_cast<std::uint64_t>(d));
  const std::int64_t n = pattern.num_nodes();
  const auto operand = [&](double size) {
    at::Tensor x = size * at::randn({2, 2, n, d});
    // Features of both signs would bring normalisers close to zero.
    if (c.kind == AttentionKind::linear && c.features == FeatureMapKind::identity) x = x.abs();
    return x.to(c.dtype);
  };
  Tensors operands = {operand(sizes.queries), operand(sizes.keys), at::randn({2, 2, n, d}).to(c.dtype)};
  at::Tensor values = at::rand({2, pattern.nnz()}) + 0.1;
  values.masked_fill_(at::rand(values.sizes()) < 0.2, 0);
  values.masked_fill_((pattern.col == at::repeat_interleave(pattern.row_ptr.diff())).unsqueeze(0), 1);
  // Numbers of 16 bits, as the dense engine will round them.
  operands.push_back(values.to(at::kBFloat16).to(c.dtype == at::kDouble ? at::kDouble : at::kFloat));
  AttentionOptions options;
  options.kind = c.kind;
  options.engine = c.engine;
  options.feature_map.kind = c.features;
  options.feature_map.epsilon = 1.0 / 1024;

  Tensors wide, there;
  for (const at::Tensor& x : operands) {
    wide.push_back(x.to(at::kDouble));
    there.push_back(x.to(at::kCUDA));
  }
  const auto moved = std::make_shared<const SparsePattern>(pattern.to(at::kCUDA));
  const Tensors expected = oracle::with_gradients(
      wide, [&](const Tensors& x) { return oracle::entry_attention(x, pattern, options); }, sizes.grad);
  const Tensors actual = oracle::with_gradients(
      there,
      [&](const Tensors& x) {
        return attention(x[0], x[1], x[2], std::make_shared<SparseMask>(moved, x[3]), options);
      },
      sizes.grad);
  const char* names[] = {"out", "grad q", "grad k", "grad v", "grad values"};
  for (int i = 0; i < 5; ++i) {
    const at::Tensor x = actual[i].cpu().to(at::kDouble);
    EXPECT_TRUE(x.isfinite().all().item<bool>()) << names[i];
    const double error = (x - expected[i]).norm().item<double>() / expected[i].norm().item<double>();
    EXPECT_LE(error, tolerance_of(c.dtype)) << names[i];
  }
}

using HeadSizes = testing::OnGpu<Case>;

TEST_P(HeadSizes, AgreeWithFloat64) {
  const Case& c = GetParam();
  // 150 nodes take every kernel of the dense engine that is for few; 300 those for many.
  const SparsePattern few = *NeighbourMask(grid_graph({15, 10}), 3).entries().front().pattern,
                      many = *NeighbourMask(grid_graph({20, 15}), 3).entries().front().pattern;
  for (const std::int64_t d : {8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256}) {
    compare(c, few, d, {1, 1, 1});
    compare(c, many, d, {1, 1, 1});
  }
  for (const std::int64_t d : {8, 64, 128}) {
    for (const SparsePattern& pattern : {few, many}) {
      compare(c, pattern, d, {1, 1, 300});
      compare(c, pattern, d, {0.01, 1, 1});
      compare(c, pattern, d, {1, 0.01, 1});
      if (c.kind == AttentionKind::softmax) continue;  // large exponents leave one weight alone
      compare(c, pattern, d, {30, 30, 1});
      compare(c, pattern, d, {0.01, 0.01, 30});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HeadSizes, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace topomask
