// Plans of ranks against ranks: what count_ranks counts in one process is what they hold and send, and plans
// that are scaled from smaller graphs come near to it.
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/autograd/autograd.h>
#include <algorithm>

#include <mutex>
#include <numeric>

#include "distributed/cases.h"
#include "distributed/mask_parts.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/device_profile.h"
#include "topomask/rank_plan.h"

namespace topomask {
namespace {

using ::testing::AllOf;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Lt;
using topomask::testing::expect_error;
using topomask::testing::TemporaryFolder;

FeatureOptions walks_of(Ensembles ensembles, int max_hops = 3) {
  FeatureOptions options;
  options.ensembles = ensembles;
  options.walks.num_walks = 4;
  options.walks.max_hops = max_hops;
  options.walks.p_halt = 0.3;
  options.walks.seed = 5;
  return options;
}

TEST(RankCounts, AreThoseOfRanks) {
  for (const testing::GraphCase& one : testing::graph_cases()) {
    const Graph graph = normalise(one.graph, Normalisation::symmetric);
    for (const int size : {1, 2, 3, 8}) {
      const Partition partition = testing::parts_of(graph, size);
      for (const auto& ensembles : words<Ensembles>()) {
        const FeatureOptions options = walks_of(ensembles.value);
        const std::vector<RankCounts> counted = count_ranks(graph, partition, options);
        double entries = 0, pairs = 0;
        for (const RankCounts& of : counted) {
          entries += of.mask_entries;
          pairs += of.pairs;
        }
        Ranks::run_threads(size, [&](const RanksPtr& ranks) {
          SCOPED_TRACE(one.name + ", " + std::to_string(size) + " ranks, " + std::string(ensembles.word));
          const DistributedGraph part = DistributedGraph::from_graph(graph, partition, ranks);
          const DistributedGrfMask mask(part, options, at::tensor({1.0, 0.5}));
          const RankCounts& own = counted[static_cast<std::size_t>(ranks->rank())];
          const auto rows = mask.counts(Engine::mask), columns = mask.counts(Engine::feature);
          EXPECT_EQ(own.nodes, part.num_own());
          EXPECT_EQ(own.halo, part.num_halo());
          EXPECT_EQ(own.features, mask.features().query.features.nnz());
          EXPECT_EQ(own.deposits, mask.features().query.features.num_deposits());
          EXPECT_EQ(own.boundary_rows, rows.boundary_rows);
          EXPECT_EQ(own.mask_halo, rows.halo);
          EXPECT_EQ(own.mask_sends, rows.sends);
          EXPECT_EQ(own.query_columns, columns.query_columns);
          EXPECT_EQ(own.query_sends, columns.query_sends);
          EXPECT_EQ(own.key_columns, columns.key_columns);
          const at::Tensor all =
              ranks->sum(at::tensor({static_cast<double>(rows.entries)}, at::kDouble), "entries");
          EXPECT_NEAR(all.item<double>(), entries, 1e-6 * entries);
          EXPECT_EQ(count_pairs(part, mask.features()).pairs, pairs);
        });
      }
    }
  }
}

// Bytes that ranks send together, over the whole life of a mask.
struct Sent {
  double once = 0, forward = 0, backward = 0;
};

Sent sent_by_ranks(const Graph& graph, const RankPlanOptions& options, Engine engine) {
  const Partition partition = testing::parts_of(graph, static_cast<int>(options.ranks));
  Sent sent;
  std::mutex mutex;
  Ranks::run_threads(static_cast<int>(options.ranks), [&](const RanksPtr& ranks) {
    const auto taken = [&, before = std::int64_t{0}]() mutable {
      const std::int64_t now = ranks->bytes_sent(), bytes = now - before;
      before = now;
      return static_cast<double>(bytes);
    };
    auto since_last = taken;
    const DistributedGraph part =
        DistributedGraph::from_graph(graph, partition, ranks).normalised(options.normalisation);
    at::Tensor f = at::randn({options.heads, options.features.walks.max_hops + 1}).abs().requires_grad_();
    const DistributedGrfMask mask(part, options.features, f);
    AttentionOptions attending;
    attending.engine = engine;
    EXPECT_EQ(choose_engine(mask, {}, options.channels, options.values), engine);
    mask.counts(engine);
    const double once = since_last();
    const auto draw = [&](std::int64_t width) {
      return at::randn({1, options.heads, part.num_own(), width}).requires_grad_();
    };
    const at::Tensor q = draw(options.channels), k = draw(options.channels), v = draw(options.values);
    const at::Tensor out = attention(q, k, v, mask, attending);
    const double forward = since_last();
    torch::autograd::backward({out.sum()}, {});
    const double backward = since_last();
    const std::lock_guard<std::mutex> lock(mutex);
    sent.once += once;
    sent.forward += forward;
    sent.backward += backward;
  });
  return sent;
}

TEST(RankPlan, PredictsWhatRanksSend) {
  struct Case {
    std::string graph;
    Ensembles ensembles;
    Engine engine;
  };
  for (const Case& one : {Case{"grid:70x70", Ensembles::shared, Engine::mask},
                          Case{"grid:70x70", Ensembles::independent, Engine::mask},
                          Case{"grid:70x70", Ensembles::asymmetric, Engine::mask},
                          Case{"ba:1500,6,1", Ensembles::shared, Engine::feature}}) {
    SCOPED_TRACE(one.graph + " " + std::string(word_of(one.ensembles)));
    RankPlanOptions options;
    options.ranks = 3;
    options.features = walks_of(one.ensembles, 4);
    options.heads = 2;
    options.channels = 16;
    options.values = 8;
    const RankPlan plan = plan_ranks(one.graph, options);
    EXPECT_FALSE(plan.scaled);
    EXPECT_EQ(plan.engine, one.engine);
    EXPECT_THAT(plan.source, HasSubstr("counted on this graph"));
    const Sent sent = sent_by_ranks(load_graph(one.graph).graph, options, one.engine);
    EXPECT_DOUBLE_EQ(3 * plan.bytes_forward, sent.forward);
    EXPECT_NEAR(3 * plan.bytes_backward, sent.backward, 0.01 * sent.backward);
    // How often walks cross borders is an estimate, and before walkers are sent some rows may have been
    // fetched. Sizes and flags that all ranks tell each other are not counted.
    EXPECT_THAT(sent.once / (3 * plan.bytes_once), AllOf(Gt(0.6), Lt(1.7)));
    EXPECT_GE(plan.bytes_forward_most, plan.bytes_forward);
  }
}

// A plan from graphs of a quarter or a sixteenth of the size against the counts of the graph itself.
TEST(RankPlan, ScalesSmallerGraphsOfTheFamily) {
  struct Case {
    std::string graph;
    std::int64_t most;
    double tolerance;
  };
  for (const Case& one : {Case{"grid:160x160", 6400, 0.15}, Case{"grid:24x24x24", 4096, 0.3},
                          Case{"cycle:20000", 4000, 0.6}, Case{"torus:16000,6,1", 4000, 0.25},
                          Case{"er:12000,0.0005,1", 3000, 0.25}, Case{"ba:12000,4,1", 3000, 0.35}}) {
    SCOPED_TRACE(one.graph);
    RankPlanOptions options;
    options.ranks = 8;
    options.features = walks_of(Ensembles::shared);
    const RankPlan counted = plan_ranks(one.graph, options);
    options.most_counted = one.most;
    const RankPlan scaled = plan_ranks(one.graph, options);
    EXPECT_FALSE(counted.scaled);
    EXPECT_TRUE(scaled.scaled);
    EXPECT_EQ(scaled.nodes, counted.nodes);
    const auto ratio = [&](double RankCounts::*member) { return scaled.mean.*member / counted.mean.*member; };
    const auto near = AllOf(Gt(1 - one.tolerance), Lt(1 + one.tolerance));
    EXPECT_NEAR(ratio(&RankCounts::nodes), 1, 0.02);
    EXPECT_NEAR(ratio(&RankCounts::features), 1, 0.03);
    EXPECT_THAT(ratio(&RankCounts::mask_entries), near);
    EXPECT_THAT(ratio(&RankCounts::halo), near);
    EXPECT_THAT(ratio(&RankCounts::mask_halo), near);
    EXPECT_THAT(scaled.memory_total / counted.memory_total, near);
    EXPECT_EQ(scaled.engine, counted.engine);
  }
}

TEST(RankPlan, ReadsHalosOfShards) {
  const TemporaryFolder folder;
  const std::string path = folder / "parts";
  const Graph grid = grid_graph({120, 120});
  const Partition partition = testing::parts_of(grid, 4);
  write_shards(path, grid, partition);
  RankPlanOptions options;
  options.ranks = 4;
  options.features = walks_of(Ensembles::shared);
  const RankPlan counted = plan_ranks("shards:" + path, options);
  EXPECT_THAT(counted.source, HasSubstr("counted on the shards of"));
  options.most_counted = 2000;
  const RankPlan plan = plan_ranks("shards:" + path, options);
  EXPECT_TRUE(plan.scaled);
  EXPECT_THAT(plan.source, HasSubstr("rows and halos of the 4 shards"));
  EXPECT_EQ(plan.nodes, 14400);
  EXPECT_EQ(plan.mean.halo, counted.mean.halo);
  EXPECT_EQ(plan.largest.entries, counted.largest.entries);
  // Parts of 125 nodes have many corners: the ratio to their halo is somewhat larger.
  EXPECT_THAT(plan.mean.mask_halo / counted.mean.mask_halo, AllOf(Gt(0.8), Lt(1.6)));
  EXPECT_NEAR(plan.mean.features / counted.mean.features, 1, 0.05);

  options.ranks = 3;
  expect_error([&] { plan_ranks("shards:" + path, options); }, "has 4 shards and too many nodes");
  options.most_counted = 1 << 20;  // small enough to be cut again
  EXPECT_THAT(plan_ranks("shards:" + path, options).source, HasSubstr("counted on this graph, cut by metis"));
}

TEST(RankPlan, ScalesAGraphThatIsNoFamily) {
  RankPlanOptions options;
  options.ranks = 4;
  options.features = walks_of(Ensembles::shared);
  const RankPlan counted = plan_ranks("hypercube:12", options);
  options.most_counted = 1024;
  const RankPlan plan = plan_ranks("hypercube:12", options);
  EXPECT_THAT(plan.source, HasSubstr("rows and halos of this graph cut by metis"));
  EXPECT_EQ(plan.mean.halo, counted.mean.halo);
  EXPECT_EQ(plan.nodes, 4096);
}

TEST(RankPlan, OfABillionNodesOnGpus) {
  RankPlanOptions options;
  options.ranks = 64;
  options.device = "h200";
  options.features = walks_of(Ensembles::shared);
  options.most_counted = 1 << 14;  // for a quick test
  const RankPlan plan = plan_ranks("grid:31623x31623", options);
  EXPECT_EQ(plan.nodes, 31623LL * 31623);
  EXPECT_NEAR(plan.mean.nodes, 31623.0 * 31623 / 64, 1e5);
  // A square of 3953 x 3953 nodes has four sides.
  EXPECT_THAT(plan.largest.halo, AllOf(Gt(3.0 * 3953), Lt(6.0 * 3953)));
  EXPECT_GT(plan.largest.mask_halo, plan.largest.halo);
  EXPECT_EQ(plan.memory_limit, device_profile("h200").memory);
  EXPECT_THAT(plan.to_string(), AllOf(HasSubstr("1e+09 nodes over 64 ranks"), HasSubstr("scaled")));
  RankPlanOptions crowded = options;
  crowded.ranks = 1;
  EXPECT_THAT(plan_ranks("grid:31623x31623", crowded).to_string(), HasSubstr("It does not fit"));
  options.link_bandwidth = plan.link_bandwidth / 1000;
  EXPECT_GT(plan_ranks("grid:31623x31623", options).seconds_exchange, 100 * plan.seconds_exchange);
}

// One rank is attention without ranks: the memory is that of memory_plan.h.
TEST(RankPlan, OfOneGpu) {
  RankPlanOptions options;
  options.ranks = 1;
  options.device = "h200";
  options.features = walks_of(Ensembles::shared);
  options.channels = options.values = 32;
  options.learned = false;
  options.most_counted = 1 << 14;
  const RankPlan wide = plan_ranks("grid:10000x10000", options);
  options.dtype = at::kBFloat16;
  const RankPlan plan = plan_ranks("grid:10000x10000", options);
  const auto bytes = [](const RankPlan& of, std::string_view use) {
    const auto found = std::find_if(of.memory.begin(), of.memory.end(),
                                    [&](const RankMemory& part) { return part.use == use; });
    return found == of.memory.end() ? -1 : found->bytes;
  };
  EXPECT_EQ(bytes(plan, "q, k and v"), 3 * 6.4e9);
  EXPECT_EQ(bytes(wide, "q, k and v"), 3 * 12.8e9);
  EXPECT_NEAR(bytes(plan, "graph"), 4e9, 0.05e9);
  double sum = 0;
  for (const RankMemory& part : plan.memory) sum += part.bytes;
  EXPECT_EQ(sum, plan.memory_total);
  EXPECT_GT(wide.memory_total, plan.memory_total + 19e9);
  options.ranks = 2;
  expect_error([&] { plan_ranks("grid:10000x10000", options); }, "ranks work in float32, got BFloat16");
  options.ranks = 1;
  options.device = "cpu";
  expect_error([&] { plan_ranks("grid:1000x1000", options); }, "got BFloat16 for 1 of them on cpu");
}

TEST(RankPlan, OneSentencePerMistake) {
  RankPlanOptions options;
  const auto plan = [&](const std::string& graph) { plan_ranks(graph, options); };
  options.device = "h2000";
  expect_error([&] { plan("grid:4x4"); }, "device: unknown value 'h2000'");
  options.device = "cpu";
  options.ranks = 0;
  expect_error([&] { plan("grid:4x4"); }, "ranks must be from 1 to 4096, got 0");
  options.ranks = 2;
  for (std::int64_t RankPlanOptions::*size :
       {&RankPlanOptions::heads, &RankPlanOptions::channels, &RankPlanOptions::values}) {
    const std::int64_t usual = options.*size;
    for (const std::int64_t wrong : {std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 20) + 1}) {
      options.*size = wrong;
      expect_error([&] { plan("grid:4x4"); }, "heads, m and d must be 1 to 1048576, got");
    }
    options.*size = usual;
  }
  expect_error([&] { plan("grid:3000000x3000000"); }, "a graph has at most 2^31 - 1");
  expect_error([&] { plan("gird:4x4"); }, "did you mean");
  expect_error([&] { plan("shards:/nowhere"); }, "holds no finished partition");
  options.link_bandwidth = -1;
  expect_error([&] { plan("grid:4x4"); }, "the bandwidth must be positive");
}

}  // namespace
}  // namespace topomask
