// Walks and features on any number of ranks are those of one process, bit for bit, by either route.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "distributed/cases.h"
#include "topomask/distributed.h"

namespace topomask {
namespace {

// The rows of the whole graph's features that belong to one rank.
void expect_features(const WalkFeatures& whole, const DistributedWalkFeatures& part,
                     const DistributedGraph& graph) {
  const WalkFeatures& own = part.features;
  const auto begin = [](const at::Tensor& ptr, std::int64_t i) { return ptr[i].item<std::int64_t>(); };
  ASSERT_EQ(own.num_nodes(), graph.num_own());
  EXPECT_EQ(own.exact, whole.exact);
  for (std::int64_t i = 0; i < graph.num_own(); ++i) {
    const std::int64_t node = graph.original()[i];
    const std::int64_t first = begin(own.row_ptr, i), entries = begin(own.row_ptr, i + 1) - first;
    const std::int64_t from = begin(whole.row_ptr, node);
    ASSERT_EQ(entries, begin(whole.row_ptr, node + 1) - from) << "node " << node;
    EXPECT_TRUE(at::equal(own.col.narrow(0, first, entries), whole.col.narrow(0, from, entries)));
    const std::int64_t deposit = begin(own.deposit_ptr, first),
                       count = begin(own.deposit_ptr, first + entries) - deposit,
                       deposit_from = begin(whole.deposit_ptr, from);
    ASSERT_EQ(count, begin(whole.deposit_ptr, from + entries) - deposit_from);
    for (std::int64_t e = 0; e <= entries; ++e) {
      EXPECT_EQ(begin(own.deposit_ptr, first + e) - deposit,
                begin(whole.deposit_ptr, from + e) - deposit_from);
    }
    EXPECT_TRUE(at::equal(own.hop.narrow(0, deposit, count), whole.hop.narrow(0, deposit_from, count)));
    EXPECT_TRUE(at::equal(own.load.narrow(0, deposit, count), whole.load.narrow(0, deposit_from, count)));
  }
}

struct WalkCase {
  std::string name;
  WalkOptions options;
};

std::vector<WalkCase> walk_cases() {
  std::vector<WalkCase> cases;
  for (const auto& word : words<Coupling>()) {
    for (const auto& step : words<StepLaw>()) {
      WalkOptions options;
      options.num_walks = 6;
      options.max_hops = 5;
      options.p_halt = 0.3;
      options.coupling = word.value;
      options.step = step.value;
      options.seed = 11;
      cases.push_back({std::string(word.word) + " " + std::string(step.word), options});
    }
  }
  WalkOptions fixed;
  fixed.num_walks = 4;
  fixed.max_hops = 3;
  fixed.length = LengthLaw::fixed;
  cases.push_back({"fixed", fixed});
  WalkOptions survival = fixed;
  survival.length = LengthLaw::survival;
  survival.survival = {1, 0.75, 0.5, 0};
  survival.ensemble = 2;
  cases.push_back({"survival", survival});
  return cases;
}

TEST(DistributedWalks, have_the_bits_of_one_process) {
  const std::vector<WalkCase> walks = walk_cases();
  for (const testing::GraphCase& one : testing::graph_cases()) {
    const Graph graph = normalise(one.graph, Normalisation::symmetric);
    std::vector<WalkFeatures> features;
    std::vector<at::Tensor> paths;
    for (const WalkCase& walk : walks) {
      features.push_back(sample_walk_features(graph, walk.options));
      paths.push_back(sample_walks(graph, walk.options));
    }
    for (const int size : testing::kRankCounts) {
      const Partition partition = testing::parts_of(graph, size);
      Ranks::run_threads(size, [&](const RanksPtr& ranks) {
        const DistributedGraph part = DistributedGraph::from_graph(graph, partition, ranks);
        for (std::size_t i = 0; i < walks.size(); ++i) {
          for (const WalkRoute route : {WalkRoute::halo, WalkRoute::walkers}) {
            SCOPED_TRACE(one.name + ", " + walks[i].name + ", " + std::to_string(size) + " ranks by " +
                         std::string(word_of(route)));
            expect_features(features[i], sample_walk_features(part, walks[i].options, true, route), part);
            EXPECT_TRUE(at::equal(sample_walks(part, walks[i].options, route),
                                  paths[i].index_select(0, part.nodes())));
          }
        }
      });
    }
  }
}

TEST(DistributedWalks, keys_walk_as_in_one_process_and_visits_may_count_one) {
  testing::on_all([](const testing::GraphCase& one, const Partition& partition, const RanksPtr& ranks) {
    const DistributedGraph part = DistributedGraph::from_graph(one.graph, partition, ranks);
    for (const auto& word : words<Ensembles>()) {
      FeatureOptions options;
      options.ensembles = word.value;
      options.walks.num_walks = 4;
      options.walks.max_hops = 4;
      options.importance_weights = word.value != Ensembles::independent;
      const GraphFeatures whole = sample_features(one.graph, options);
      const DistributedFeatures found = sample_features(part, options);
      expect_features(whole.query, found.query, part);
      if (word.value != Ensembles::asymmetric) expect_features(whole.key, found.key, part);
    }
  });
}

TEST(DistributedWalks, are_enumerated_where_one_process_enumerates) {
  KnnOptions knn;
  const Graph graph = knn_graph(torus_points(40, 1), knn);
  WalkOptions options;
  options.num_walks = 9;
  options.max_hops = 2;
  options.length = LengthLaw::fixed;
  options.coupling = Coupling::repelling;
  const WalkFeatures whole = sample_walk_features(graph, options);
  ASSERT_TRUE(whole.exact);
  for (const WalkRoute route : {WalkRoute::automatic, WalkRoute::walkers}) {
    Ranks::run_threads(3, [&](const RanksPtr& ranks) {
      const DistributedGraph part = DistributedGraph::from_graph(graph, testing::parts_of(graph, 3), ranks);
      expect_features(whole, sample_walk_features(part, options, true, route), part);
    });
  }
}

TEST(DistributedWalks, take_the_route_with_fewer_bytes) {
  // Few hops on a grid reach few nodes; long walks of one walker on a dense graph would fetch all of it.
  WalkOptions few, far;
  few.num_walks = 32;
  few.max_hops = 2;
  far.num_walks = 1;
  far.max_hops = 6;
  const Graph grid = grid_graph({40, 40}), dense = erdos_renyi(300, 0.2, 1);
  Ranks::run_threads(2, [&](const RanksPtr& ranks) {
    const auto route = [&](const Graph& graph, const WalkOptions& options) {
      const DistributedGraph part = DistributedGraph::from_graph(graph, testing::parts_of(graph, 2), ranks);
      return sample_walk_features(part, options).route;
    };
    EXPECT_EQ(route(grid, few), WalkRoute::halo);
    EXPECT_EQ(route(dense, far), WalkRoute::walkers);
  });
}

}  // namespace
}  // namespace topomask
