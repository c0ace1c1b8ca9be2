#include "topomask/memory_plan.h"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/small_graphs.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_spec.h"
#include "topomask/grf_mask.h"

namespace topomask {
namespace {

FeatureOptions few_walks(Ensembles ensembles = Ensembles::shared) {
  FeatureOptions options;
  options.walks.num_walks = 4;
  options.walks.p_halt = 0.5;
  options.walks.max_hops = 3;
  options.ensembles = ensembles;
  return options;
}

// From the mask itself.
ChainCounts real_counts(const Graph& graph, const FeatureOptions& options) {
  const GrfMask mask(graph, options, at::ones({options.walks.max_hops + 1}));
  mask.count_entries();
  const GraphFeatures& features = mask.features(0);
  ChainCounts counts;
  counts.features = static_cast<double>(features.query.nnz());
  counts.deposits = static_cast<double>(features.query.num_deposits());
  counts.mask_entries = static_cast<double>(mask.profile().entries);
  counts.pairs = mask.profile().value_multiply_adds - counts.deposits;
  return counts;
}

void expect_near(const ChainCounts& got, const ChainCounts& expected, double tolerance) {
  EXPECT_NEAR(got.features, expected.features, tolerance * expected.features);
  EXPECT_NEAR(got.deposits, expected.deposits, tolerance * expected.deposits);
  EXPECT_NEAR(got.pairs, expected.pairs, tolerance * expected.pairs);
  EXPECT_NEAR(got.mask_entries, expected.mask_entries, tolerance * expected.mask_entries);
}

TEST(ChainCounts, OfASmallGraphAreCounted) {
  const Graph grid = grid_graph({30, 30});
  const ChainCounts counts = count_chain(grid, few_walks());
  expect_near(counts, real_counts(grid, few_walks()), 0);
  EXPECT_EQ(counts.nodes, 900);
  EXPECT_EQ(counts.entries, static_cast<double>(grid.num_entries()));
  EXPECT_EQ(counts.key_features, 0);
  EXPECT_EQ(counts.source, "counted on this graph");
  const ChainCounts directed = count_chain(test::directed_graph(), few_walks());
  EXPECT_GT(directed.key_features, 0);
  const ChainCounts one_hot = count_chain(grid, few_walks(Ensembles::asymmetric));
  EXPECT_EQ(one_hot.mask_entries, one_hot.features);
  testing::expect_error([&] { count_chain(grid, few_walks(), 0); }, "most must be positive, got 0");
}

TEST(ChainCounts, OfALargeGraphAreThoseOfAPart) {
  const Graph grid = grid_graph({200, 200});
  const ChainCounts counts = count_chain(grid, few_walks(), 10000);
  EXPECT_EQ(counts.nodes, 40000);
  EXPECT_EQ(counts.entries, static_cast<double>(grid.num_entries()));
  expect_near(counts, real_counts(grid, few_walks()), 0.05);
  EXPECT_THAT(counts.source, ::testing::HasSubstr("10000 nodes of this graph"));
}

TEST(ChainCounts, OfAFamilyComeFromASmallerOne) {
  constexpr auto kNone = Normalisation::none;
  for (const char* spec : {"grid:150x300", "er:40000,0.0001", "ba:40000,3"}) {
    SCOPED_TRACE(spec);
    const std::optional<ChainCounts> counts = count_chain(spec, kNone, few_walks(), 10000);
    ASSERT_TRUE(counts.has_value());
    const Graph graph = load_graph(spec).graph;
    EXPECT_EQ(counts->nodes, static_cast<double>(graph.num_nodes()));
    EXPECT_NEAR(counts->entries, static_cast<double>(graph.num_entries()), 0.05 * counts->entries);
    expect_near(*counts, real_counts(graph, few_walks()), spec[0] == 'b' ? 0.3 : 0.05);
  }
  EXPECT_FALSE(count_chain("grid:100x100", kNone, few_walks(), 10000).has_value());
  EXPECT_FALSE(count_chain("karate", kNone, few_walks()).has_value());
}

// More than an int counts: the description is enough, for nothing of that size is made.
TEST(ChainCounts, OfAHugeGraphAreKnownAtOnce) {
  const std::optional<ChainCounts> counts =
      count_chain("grid:40000x50000", Normalisation::symmetric, few_walks());
  ASSERT_TRUE(counts.has_value());
  EXPECT_EQ(counts->nodes, 2e9);
  EXPECT_NEAR(counts->entries, 8e9, 0.01 * 8e9);
  EXPECT_GT(counts->mask_entries, 10e9);
  const MaskProfile profile = counts->profile();
  EXPECT_EQ(profile.num_nodes, 2'000'000'000);
  EXPECT_GT(profile.entries, 10'000'000'000);
}

ChainCounts round_counts() {
  ChainCounts counts;
  counts.nodes = 1e8;
  counts.entries = 4e8;
  counts.features = 4e8;
  counts.deposits = 5e8;
  counts.pairs = 2e9;  // too many to be listed
  counts.mask_entries = 1.5e9;
  return counts;
}

AttentionShape round_shape() {
  return {1, 1, 100'000'000, 32, 32, at::kBFloat16};
}

double lasting(const MemoryPlan& plan, std::string_view name) {
  for (const MemoryStep& step : plan.steps) {
    if (step.name == name) return step.lasting;
  }
  return -1;
}

TEST(MemoryPlan, AddsUpTensors) {
  const MemoryPlan plan = plan_memory(round_counts(), round_shape(), Engine::mask, false);
  EXPECT_EQ(lasting(plan, "graph"), 0.8e9 + 3.2e9);
  EXPECT_EQ(lasting(plan, "q, k and v"), 3 * 6.4e9);
  EXPECT_EQ(lasting(plan, "walks"), 0.8e9 + 4.8e9 + 3e9);
  EXPECT_EQ(lasting(plan, "columns of keys"), 0.8e9 + 4.8e9);
  EXPECT_EQ(lasting(plan, "pattern of M"), 0.8e9 + 6e9);
  EXPECT_EQ(lasting(plan, "values of M"), 6e9);
  EXPECT_EQ(lasting(plan, "attention"), 6.4e9);
  double held = 0;
  for (const MemoryStep& step : plan.steps) {
    EXPECT_GE(step.peak, held + step.lasting) << step.name;
    EXPECT_LE(step.peak, plan.peak) << step.name;
    held += step.lasting;
  }
  EXPECT_GE(plan.peak, held);
  EXPECT_LT(plan.peak, 80e9);
  EXPECT_EQ(plan.highest().peak, plan.peak);
  EXPECT_THAT(plan.to_string(), ::testing::HasSubstr("pattern of M"));
}

TEST(MemoryPlan, CountsTiles) {
  ChainCounts counts = round_counts();
  counts.nodes = 2e7;
  counts.pairs = counts.mask_entries = 4e8;
  AttentionShape shape = round_shape();
  shape.num_nodes = 20'000'000;
  const MemoryPlan plan = plan_memory(counts, shape, Engine::mask, false);
  EXPECT_NEAR(lasting(plan, "tiles of M"), 4.15e9, 1e6);  // 10.25 bytes per entry, 2.5 per node
  const auto peak = [](const MemoryPlan& of) { return of.steps.back().peak; };
  AttentionShape wide = shape;
  wide.dtype = at::kFloat;
  const MemoryPlan by_rows = plan_memory(counts, wide, Engine::mask, false);
  EXPECT_EQ(lasting(by_rows, "tiles of M"), -1);
  shape.dtype = at::kHalf;  // as large as bfloat16, and without tiles
  EXPECT_NEAR(peak(plan) - peak(plan_memory(counts, shape, Engine::mask, false)), 4.15e9 + 3.2e9, 1e6);
  EXPECT_EQ(lasting(plan_memory(round_counts(), round_shape(), Engine::mask, false), "tiles of M"), -1);
}

TEST(MemoryPlan, KnowsWhatIsNotMade) {
  const MemoryPlan forward = plan_memory(round_counts(), round_shape(), Engine::mask, false);
  EXPECT_GT(plan_memory(round_counts(), round_shape(), Engine::mask, true).peak, forward.peak + 60e9);
  EXPECT_EQ(lasting(plan_memory(round_counts(), round_shape(), Engine::feature, false), "pattern of M"), -1);
  ChainCounts few = round_counts();
  few.pairs = 5e8;
  EXPECT_EQ(lasting(plan_memory(few, round_shape(), Engine::mask, false), "products of M"), 12e9 + 4e9);
  ChainCounts own_f = round_counts();
  own_f.heads = 4;
  AttentionShape heads = round_shape();
  heads.heads = 4;
  EXPECT_EQ(lasting(plan_memory(own_f, heads, Engine::mask, false), "values of M"), 4 * 6e9);
  EXPECT_EQ(own_f.profile().heads, 4);
  ChainCounts one_hot = round_counts();
  one_hot.ensembles = Ensembles::asymmetric;
  EXPECT_EQ(lasting(plan_memory(one_hot, round_shape(), Engine::mask, false), "columns of keys"), -1);
  ChainCounts own_keys = round_counts();
  own_keys.key_features = own_keys.features;
  own_keys.key_deposits = own_keys.deposits;
  EXPECT_EQ(lasting(plan_memory(own_keys, round_shape(), Engine::mask, false), "walks"), 2 * 8.6e9);
  testing::expect_error([] { plan_memory(round_counts(), round_shape(), Engine::dense, false); },
                        "expected engine mask or feature");
}

}  // namespace
}  // namespace topomask
