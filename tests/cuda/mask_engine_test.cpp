// The mask engine on a GPU against the CPU in float64: values and gradients, long rows, layouts,
// repeatability.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <cmath>

#include "compare.h"
#include "gpu.h"
#include "masks/gpu.h"
#include "support/pattern_per_head.h"
#include "topomask/attention.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"

namespace topomask::testing {
namespace {

std::vector<SparseEntries> entries_of(const std::vector<std::shared_ptr<const SparsePattern>>& patterns,
                                      const std::vector<at::Tensor>& values) {
  std::vector<SparseEntries> all;
  for (std::size_t h = 0; h < patterns.size(); ++h) all.push_back({patterns[h], values[h]});
  return all;
}

SparsePattern pattern_of(const Graph& graph, int hops) {
  return *NeighbourMask(graph, hops).entries().front().pattern;
}

struct NamedPattern {
  std::string name;
  SparsePattern pattern;
};

std::vector<NamedPattern> patterns() {
  EdgeList star;  // its centre has more entries than a segment, as a row and as a column
  star.num_nodes = 700;
  for (std::int32_t i = 1; i < 700; ++i) {
    star.source.push_back(0);
    star.target.push_back(i);
  }
  const Graph directed = Graph::from_csr({{0, 2, 3, 5, 5, 6}, {1, 2, 2, 0, 4, 4}, {1, 1, 1, 1, 1, 1}}, true);
  return {{"knn", pattern_of(knn_graph(at::rand({150, 3}), {6, true}), 2)},
          {"star", pattern_of(Graph::from_edges(star), 1)},
          {"isolated", *NeighbourMask(erdos_renyi(60, 0.03, 5), 1, false).entries().front().pattern},
          {"directed", pattern_of(directed, 1)},
          {"single", pattern_of(path_graph(1), 1)}};
}

struct Setting {
  AttentionKind kind = AttentionKind::linear;
  FeatureMapKind features = FeatureMapKind::relu;
  at::ScalarType dtype = at::kFloat;
  std::int64_t batch = 1, heads = 2, value_heads = 2, d = 64, d_v = 64;
  bool packed = false;
};

AttentionOptions options_of(const Setting& s) {
  AttentionOptions options;
  options.kind = s.kind;
  options.feature_map.kind = s.features;
  options.engine = Engine::mask;
  return options;
}

// q, k, v and the mask's values, rounded to what the GPU will see.
std::vector<at::Tensor> inputs_of(const Setting& s, std::int64_t n, std::int64_t nnz) {
  const auto operand = [&](std::int64_t columns) {
    at::Tensor x = s.packed ? at::randn({n, s.heads, columns}) : at::randn({s.batch, s.heads, n, columns});
    if (s.features == FeatureMapKind::identity) x = x.abs();  // keeps the normaliser away from 0
    return x.to(s.dtype).to(at::kDouble);
  };
  return {operand(s.d), operand(s.d), operand(s.d_v), at::rand({s.value_heads, nnz}).to(at::kDouble) + 0.1};
}

Outcome attend(const Setting& s, const SparsePattern& pattern, const std::vector<at::Tensor>& leaves) {
  const auto shared = std::make_shared<const SparsePattern>(pattern);
  return differentiate(
      [&](const std::vector<at::Tensor>& x) {
        return attention(x[0], x[1], x[2], std::make_shared<SparseMask>(shared, x[3]), options_of(s));
      },
      leaves);
}

void compare(const Setting& s, const NamedPattern& named) {
  SCOPED_TRACE(::testing::Message() << named.name << " " << c10::toString(s.dtype) << " kind "
                                    << static_cast<int>(s.kind) << " features "
                                    << static_cast<int>(s.features) << " batch " << s.batch << " heads "
                                    << s.heads << "/" << s.value_heads << " d " << s.d << " " << s.d_v
                                    << (s.packed ? " packed" : ""));
  const auto values = inputs_of(s, named.pattern.num_nodes(), named.pattern.nnz());
  const Outcome expected = attend(s, named.pattern, attention_leaves(values, at::kCPU, at::kDouble));
  const SparsePattern moved = named.pattern.to(at::kCUDA);
  const auto leaves = attention_leaves(values, at::kCUDA, s.dtype);
  const Outcome actual = attend(s, moved, leaves);
  EXPECT_EQ(actual.result.scalar_type(), s.dtype);
  expect_close(actual, expected, tolerance_of(s.dtype));
  expect_identical(actual, attend(s, moved, leaves));
}

class MaskEngineOnGpu : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    TOPOMASK_NEEDS_GPU();
    at::manual_seed(7);
  }
};

TEST_P(MaskEngineOnGpu, AgreesWithTheCpu) {
  for (const NamedPattern& named : patterns()) {
    for (const AttentionKind kind : {AttentionKind::linear, AttentionKind::softmax}) {
      for (const std::int64_t batch : {1, 2}) {
        Setting s;
        s.kind = kind;
        s.dtype = GetParam();
        s.batch = batch;
        s.heads = 4;
        s.value_heads = batch == 1 ? 4 : 1;
        compare(s, named);
      }
    }
  }
}

TEST_P(MaskEngineOnGpu, TakesEveryWidth) {
  const std::vector<NamedPattern> all = patterns();
  for (const auto& [d, d_v] : std::vector<std::pair<int, int>>{
           {16, 16}, {32, 24}, {48, 64}, {128, 128}, {256, 64}, {9, 7}, {2, 1}, {300, 40}, {8, 264}}) {
    for (const std::size_t which : {0, 1}) {
      Setting s;
      s.dtype = GetParam();
      s.d = d;
      s.d_v = d_v;
      // Two features that ReLU cuts off leave normalisers near 0, which no rounding survives.
      if (d < 8) s.features = FeatureMapKind::elu1;
      compare(s, all[which]);
      s.kind = AttentionKind::softmax;
      compare(s, all[which]);
    }
  }
}

TEST_P(MaskEngineOnGpu, TakesPlainFeaturesAndPackedRows) {
  const std::vector<NamedPattern> all = patterns();
  Setting s;
  s.dtype = GetParam();
  s.features = FeatureMapKind::identity;
  compare(s, all[0]);
  s.features = FeatureMapKind::relu;
  s.packed = true;
  compare(s, all[0]);
  s.features = FeatureMapKind::elu1;
  compare(s, all[0]);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MaskEngineOnGpu,
                         ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf, at::kDouble));

TEST(MaskEngineOnOneGpu, DoesNotDependOnTheOrderOfWork) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(8);
  for (const NamedPattern& named : patterns()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      Setting s;
      s.dtype = dtype;
      SparsePattern plain = named.pattern.to(at::kCUDA), shuffled = plain;
      shuffled.order = at::randperm(plain.num_nodes()).to(at::kCUDA, at::kInt);
      const auto leaves = attention_leaves(inputs_of(s, plain.num_nodes(), plain.nnz()), at::kCUDA, dtype);
      expect_identical(attend(s, plain, leaves), attend(s, shuffled, leaves));
    }
  }
}

TEST(MaskEngineOnOneGpu, NeverTouchesWhatTheMaskLeavesOut) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(12);
  // Node 0 sees and is seen by nobody, not even itself.
  EdgeList edges;
  edges.num_nodes = 40;
  for (std::int32_t i = 1; i + 1 < 40; ++i) {
    edges.source.push_back(i);
    edges.target.push_back(i + 1);
  }
  const SparsePattern pattern = *NeighbourMask(Graph::from_edges(edges), 3, false).entries().front().pattern;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const AttentionKind kind : {AttentionKind::linear, AttentionKind::softmax}) {
      Setting s;
      s.dtype = dtype;
      s.kind = kind;
      std::vector<at::Tensor> values = inputs_of(s, 40, pattern.nnz());
      for (const int operand : {1, 2}) values[operand].select(2, 0).fill_(std::nan(""));
      const Outcome outcome = attend(s, pattern.to(at::kCUDA), attention_leaves(values, at::kCUDA, dtype));
      EXPECT_TRUE(at::isfinite(outcome.result).all().item<bool>());
      EXPECT_EQ(outcome.result.select(2, 0).abs().sum().item<double>(), 0);
      for (const at::Tensor& gradient : outcome.gradients)
        EXPECT_TRUE(at::isfinite(gradient).all().item<bool>());
    }
  }
}

// Enough rows for tiles. Node 0 has more entries than a segment, and the last tile is not full.
SparsePattern pattern_for_tiles() {
  const Graph grid = grid_graph({43, 50}, {.diagonals = true});
  EdgeList edges;
  edges.num_nodes = grid.num_nodes();
  const auto row_ptr = grid.row_ptr.accessor<std::int64_t, 1>();
  const auto col = grid.col.accessor<std::int32_t, 1>();
  for (std::int32_t i = 0; i < grid.num_nodes(); ++i) {
    for (std::int64_t e = row_ptr[i]; e < row_ptr[i + 1]; ++e) {
      edges.source.push_back(i);
      edges.target.push_back(col[e]);
    }
  }
  for (std::int32_t i = 1; i < 400; ++i) {
    edges.source.push_back(0);
    edges.target.push_back(5 * i);
  }
  return pattern_of(Graph::from_edges(edges), 1);
}

// The second call for a pattern makes its tiles; from then on attention takes them.
void expect_tiles(const SparsePattern& pattern) {
  EXPECT_FALSE(row_tiles(pattern, device_rows(pattern)).has_value());
  EXPECT_TRUE(row_tiles(pattern, device_rows(pattern)).has_value());
}

at::Tensor attend_without_gradients(const Setting& s, const SparsePattern& pattern,
                                    const std::vector<at::Tensor>& leaves) {
  const at::NoGradGuard none;
  const auto shared = std::make_shared<const SparsePattern>(pattern);
  return attention(leaves[0], leaves[1], leaves[2], std::make_shared<SparseMask>(shared, leaves[3]),
                   options_of(s));
}

TEST(MaskEngineInTiles, AgreesWithTheCpu) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(13);
  const SparsePattern pattern = pattern_for_tiles(), moved = pattern.to(at::kCUDA);
  expect_tiles(moved);
  Setting s;
  s.dtype = at::kBFloat16;
  s.heads = 6;
  s.batch = 2;
  for (const AttentionKind kind : {AttentionKind::linear, AttentionKind::softmax}) {
    for (const FeatureMapKind features : {FeatureMapKind::relu, FeatureMapKind::identity}) {
      for (const auto& [d, d_v] :
           std::vector<std::pair<int, int>>{{64, 64}, {32, 32}, {40, 64}, {64, 8}, {16, 24}}) {
        s.kind = kind;
        s.features = features;
        s.d = d;
        s.d_v = d_v;
        s.value_heads = d == 64 ? 6 : 1;
        SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " features "
                                          << static_cast<int>(features) << " d " << d << " " << d_v);
        const auto values = inputs_of(s, pattern.num_nodes(), pattern.nnz());
        const at::Tensor expected =
            attend_without_gradients(s, pattern, attention_leaves(values, at::kCPU, at::kDouble));
        const auto leaves = attention_leaves(values, at::kCUDA, s.dtype);
        const at::Tensor actual = attend_without_gradients(s, moved, leaves);
        // Between bfloat16's rounding of results, 1.7e-3, and what a wrong entry among thousands would give.
        EXPECT_LE(relative_error(actual, expected), 4e-3);
        EXPECT_TRUE(actual.equal(attend_without_gradients(s, moved, leaves)));
        SparsePattern reversed = moved;
        reversed.derived = SparsePattern().derived;
        reversed.order = at::arange(moved.num_nodes() - 1, -1, -1, moved.col.options());
        expect_tiles(reversed);
        EXPECT_LE(relative_error(attend_without_gradients(s, reversed, leaves), expected), 4e-3);
      }
    }
  }
}

TEST(MaskEngineInTiles, NeverTouchWhatTheMaskLeavesOut) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(14);
  const SparsePattern pattern = pattern_for_tiles();
  Setting s;
  s.dtype = at::kBFloat16;
  s.heads = 8;
  for (const AttentionKind kind : {AttentionKind::linear, AttentionKind::softmax}) {
    for (const int operand : {1, 2}) {
      s.kind = kind;
      std::vector<at::Tensor> values = inputs_of(s, pattern.num_nodes(), pattern.nnz());
      values[3] = values[3].narrow(0, 0, 1);
      values[operand].select(2, 77).fill_(operand == 1 ? std::nan("") : INFINITY);
      const auto run = [&](c10::DeviceType device, at::ScalarType dtype) {
        const SparsePattern there = pattern.to(device);
        if (device == at::kCUDA) expect_tiles(there);
        return attend_without_gradients(s, there, attention_leaves(values, device, dtype))
            .to(at::kCPU, at::kDouble);
      };
      const at::Tensor expected = run(at::kCPU, at::kDouble), actual = run(at::kCUDA, s.dtype);
      const at::Tensor spoiled = at::isfinite(expected).logical_not();
      EXPECT_TRUE(spoiled.any().item<bool>());
      EXPECT_TRUE(spoiled.equal(at::isfinite(actual).logical_not()));
      EXPECT_LE(relative_error(actual.masked_fill(spoiled, 0), expected.masked_fill(spoiled, 0)), 4e-3);
    }
  }
}

TEST(MaskEngineOnOneGpu, MakesItsOwnTranspose) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(9);
  for (const NamedPattern& named : patterns()) {
    Setting s;
    const SparsePattern moved = named.pattern.to(at::kCUDA);
    const SparsePattern made = SparsePattern::from_rows(moved.row_ptr, moved.col);
    EXPECT_FALSE(made.transposed_ptr.defined());
    const auto leaves = attention_leaves(inputs_of(s, moved.num_nodes(), moved.nnz()), at::kCUDA, at::kFloat);
    expect_identical(attend(s, moved, leaves), attend(s, made, leaves));
    const SparsePattern back = made.to(at::kCPU);
    EXPECT_TRUE(back.transposed_entry.equal(named.pattern.transposed_entry));
  }
}

TEST(MaskEngineOnOneGpu, GivesHeadsPatternsOfTheirOwn) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(10);
  const Graph graph = knn_graph(at::rand({90, 3}), {4, true});
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    std::vector<std::shared_ptr<const SparsePattern>> there, here;
    std::vector<at::Tensor> leaf_values;
    const auto operand = [&] { return at::randn({2, 3, 90, 64}).to(dtype).to(at::kDouble); };
    for (int i = 0; i < 3; ++i) leaf_values.push_back(operand());
    for (int hops = 1; hops <= 3; ++hops) {
      const SparsePattern pattern = pattern_of(graph, hops);
      here.push_back(std::make_shared<const SparsePattern>(pattern));
      there.push_back(std::make_shared<const SparsePattern>(pattern.to(at::kCUDA)));
      leaf_values.push_back(at::rand({1, pattern.nnz()}).to(at::kDouble) + 0.1);
    }
    const auto run = [&](const auto& patterns_there) {
      return [&](const std::vector<at::Tensor>& x) {
        const auto mask =
            std::make_shared<PatternPerHead>(entries_of(patterns_there, {x.begin() + 3, x.end()}));
        return attention(x[0], x[1], x[2], mask, options_of(Setting()));
      };
    };
    const Outcome expected = differentiate(run(here), attention_leaves(leaf_values, at::kCPU, at::kDouble));
    expect_close(differentiate(run(there), attention_leaves(leaf_values, at::kCUDA, dtype)), expected,
                 tolerance_of(dtype));
  }
}

TEST(MaskEngineOnOneGpu, OrdersTheWorkOfScatteredNodes) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(11);
  const SparsePattern scattered = pattern_of(knn_graph(at::rand({10000, 3}), {6, true}), 1).to(at::kCUDA);
  ASSERT_TRUE(scattered.order.defined());
  EXPECT_TRUE(std::get<0>(at::sort(scattered.order)).equal(at::arange(10000, scattered.order.options())));
  EXPECT_FALSE(pattern_of(grid_graph({100, 100}), 1).to(at::kCUDA).order.defined() &&
               pattern_of(path_graph(10000), 1).to(at::kCUDA).order.defined());
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MaskEngineOnOneGpu, NamesTheDeviceItExpected) {
  TOPOMASK_NEEDS_GPU();
  using ::testing::HasSubstr;
  const auto pattern = std::make_shared<const SparsePattern>(pattern_of(path_graph(5), 1));
  const auto mask = std::make_shared<SparseMask>(pattern, at::ones({1, pattern->nnz()}));
  const at::Tensor here = at::ones({1, 1, 5, 8}), there = here.to(at::kCUDA);
  EXPECT_THAT(message_of([&] { attention(there, here, there, mask); }),
              HasSubstr("k must be on cuda:0 as q, got cpu"));
  EXPECT_THAT(message_of([&] { attention(there, there, there, mask); }),
              HasSubstr("mask 'sparse' must be on cuda:0 as q, got cpu"));
  EXPECT_THAT(message_of([&] {
                mask->multiply(at::ones({1, 5, 2}, at::kCUDA));
              }),
              HasSubstr("x must be on cpu"));
  EXPECT_THAT(message_of([&] {
                SparseMask(pattern, at::ones({1, pattern->nnz()}, at::kCUDA));
              }),
              HasSubstr("values must be on cpu as the pattern"));
}

TEST(MaskEngine, LeavesFloat16ToTheGpu) {
  const auto mask = std::make_shared<NoMask>(5);
  const at::Tensor x = at::ones({1, 1, 5, 8}, at::kHalf);
  EXPECT_THAT(message_of([&] { attention(x, x, x, mask); }), ::testing::HasSubstr("on a GPU, float16"));
}

TEST(Plan, KnowsThatAGpuHasTensorCores) {
  const Graph grid = grid_graph({16, 16});
  const NeighbourMask small(grid, 1), large(grid_graph({256, 256}), 1);
  AttentionShape shape;
  shape.device = c10::DeviceType::CUDA;
  shape.dtype = at::kBFloat16;
  shape.batch = 64;
  shape.heads = 12;
  shape.num_nodes = 256;
  AttentionShape wide = shape;
  wide.batch = 1;
  wide.num_nodes = 65536;
  EXPECT_EQ(plan_attention(large, wide, {}).engine, Engine::mask);
  const AttentionPlan plan = plan_attention(small, shape, {});
  EXPECT_THAT(plan.to_string(), ::testing::HasSubstr("on a GPU"));
  // Fully connected, 256 tokens: nothing beats matrix products.
  const SparseMask full(std::make_shared<const SparsePattern>(pattern_of(grid, 40)),
                        at::ones({1, 256 * 256}));
  EXPECT_EQ(plan_attention(full, shape, {}).engine, Engine::dense);
}

}  // namespace
}  // namespace topomask::testing
