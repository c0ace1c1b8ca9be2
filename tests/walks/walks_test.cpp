#include "topomask/walks.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "support/expect_error.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"
#include "walks/compile_plan.h"
#include "walks/cpu/walk_block.h"

namespace topomask {
namespace {

Graph directed_with_sink() {
  // 0 -> 1 -> 2, 0 -> 2, node 2 has no way out, node 3 is alone.
  return Graph::from_csr({{0, 2, 3, 3, 3}, {1, 2, 2}, {0.5f, -0.25f, 2.0f}}, true);
}

struct NamedCase {
  std::string name;
  Graph graph;
};

std::vector<NamedCase> graphs() {
  return {{"grid", grid_graph({9, 7})},
          {"path", path_graph(5)},
          {"ba", barabasi_albert(60, 3, 1)},
          {"regular", random_regular(40, 5, 2)},
          {"sink", directed_with_sink()},
          {"grid3", normalise(grid_graph({3, 4, 5}), Normalisation::symmetric)},
          {"single", path_graph(1)},
          {"er", erdos_renyi(50, 0.03, 3)}};
}

std::int32_t at(const at::Tensor& walks, std::int64_t node, std::int64_t walk, std::int64_t hop) {
  return walks.accessor<std::int32_t, 3>()[node][walk][hop];
}

bool has_edge(const Graph& graph, std::int32_t from, std::int32_t to) {
  const CsrView view = graph.view();
  for (std::int64_t e = view.row_ptr[from]; e < view.row_ptr[from + 1]; ++e) {
    if (view.col[e] == to) return true;
  }
  return false;
}

TEST(Walks, FollowEdgesAndEndOnce) {
  for (const NamedCase& c : graphs()) {
    for (const Coupling coupling :
         {Coupling::independent, Coupling::antithetic, Coupling::repelling, Coupling::both}) {
      for (const StepLaw step : {StepLaw::uniform, StepLaw::weighted}) {
        WalkOptions options;
        options.num_walks = 6;
        options.max_hops = 7;
        options.p_halt = 0.2;
        options.coupling = coupling;
        options.step = step;
        const at::Tensor walks = sample_walks(c.graph, options);
        for (std::int64_t i = 0; i < c.graph.num_nodes(); ++i) {
          for (std::int64_t w = 0; w < options.num_walks; ++w) {
            ASSERT_EQ(at(walks, i, w, 0), i);
            for (int h = 1; h <= options.max_hops; ++h) {
              const std::int32_t from = at(walks, i, w, h - 1), to = at(walks, i, w, h);
              if (to < 0) continue;
              ASSERT_GE(from, 0) << c.name << ": a walk that had ended went on";
              ASSERT_TRUE(has_edge(c.graph, from, to)) << c.name << " " << from << " -> " << to;
            }
          }
        }
      }
    }
  }
}

// The vector sampler must give the walks and loads of the plain one bit for bit, tails and sinks included.
TEST(Walks, VectorAndScalarSamplersAgreeBitForBit) {
  for (const NamedCase& c : graphs()) {
    for (const Coupling coupling : {Coupling::independent, Coupling::antithetic}) {
      for (const double p_halt : {0.0, 0.1, 0.6, 1.0}) {
        WalkOptions options;
        options.num_walks = 10;
        options.max_hops = 9;
        options.p_halt = p_halt;
        options.coupling = coupling;
        options.seed = 0x123456789abcdefull;
        const WalkPlan plan = compile_plan(options, true, true);
        const NeighbourTable table = make_neighbour_table(c.graph.view(), plan);
        ASSERT_TRUE(walks_can_use_vectors(plan, table));
        WalkBlock fast, plain;
        fast.prepare(0, c.graph.num_nodes(), plan);
        plain.prepare(0, c.graph.num_nodes(), plan);
        walk_block_vector(plan, table, fast);
        walk_block_scalar(plan, table, plain);
        ASSERT_EQ(fast.hop_begin, plain.hop_begin) << c.name;
        for (std::int64_t v = 0; v < plain.hop_begin.back(); ++v) {
          ASSERT_EQ(fast.visit_node[v], plain.visit_node[v]) << c.name;
          ASSERT_EQ(fast.visit_load[v], plain.visit_load[v]) << c.name;
          ASSERT_EQ(fast.visit_id[v], plain.visit_id[v]) << c.name;
        }
        if (plan.always_max && !table.has_sinks) {
          WalkBlock full;
          full.prepare(0, c.graph.num_nodes(), plan);
          full.all_walk_on = true;
          walk_block_vector(plan, table, full);
          ASSERT_EQ(full.hop_begin, plain.hop_begin) << c.name;
          for (std::int64_t v = 0; v < plain.hop_begin.back(); ++v) {
            ASSERT_EQ(full.visit_node[v], plain.visit_node[v]) << c.name;
          }
        }
      }
    }
  }
}

TEST(Walks, DoNotDependOnThreadsNorOnTheOtherWalks) {
  const Graph graph = grid_graph({40, 37});
  WalkOptions options;
  options.num_walks = 12;
  options.coupling = Coupling::both;
  const int threads = num_threads();
  for (const Coupling coupling : {Coupling::independent, Coupling::both}) {
    options.coupling = coupling;
    set_num_threads(1);
    const at::Tensor one = sample_walks(graph, options);
    set_num_threads(4);
    const at::Tensor four = sample_walks(graph, options);
    EXPECT_TRUE(at::equal(one, four));
  }
  // Independent walks: asking for fewer walks or hops gives a part of the same array.
  options.coupling = Coupling::independent;
  const at::Tensor many = sample_walks(graph, options);
  options.num_walks = 5;
  options.max_hops = 3;
  EXPECT_TRUE(at::equal(sample_walks(graph, options), many.slice(1, 0, 5).slice(2, 0, 4)));
  set_num_threads(threads);
}

TEST(Walks, SeedsAndEnsemblesDiffer) {
  const Graph graph = grid_graph({10, 10});
  WalkOptions options;
  const at::Tensor base = sample_walks(graph, options);
  options.seed = 1;
  EXPECT_FALSE(at::equal(base, sample_walks(graph, options)));
  options.seed = 0;
  options.ensemble = 1;
  EXPECT_FALSE(at::equal(base, sample_walks(graph, options)));
}

std::vector<double> measured_survival(const at::Tensor& walks) {
  std::vector<double> survival;
  for (std::int64_t h = 0; h < walks.size(2); ++h) {
    survival.push_back(walks.select(2, h).ge(0).to(at::kDouble).mean().item<double>());
  }
  return survival;
}

TEST(Walks, LengthsFollowTheSurvivalFunction) {
  const Graph graph = grid_graph({60, 60});
  for (const Coupling coupling :
       {Coupling::independent, Coupling::antithetic, Coupling::repelling, Coupling::both}) {
    for (const LengthLaw law : {LengthLaw::geometric, LengthLaw::fixed, LengthLaw::survival}) {
      WalkOptions options;
      options.num_walks = 8;
      options.max_hops = 5;
      options.p_halt = 0.3;
      options.length = law;
      options.survival = {1, 0.9, 0.5, 0.5, 0.1, 0};
      options.coupling = coupling;
      options.seed = 5;
      const std::vector<double> expected = survival_function(options);
      const std::vector<double> measured = measured_survival(sample_walks(graph, options));
      const double walkers = 3600 * 8;
      for (std::size_t k = 0; k < expected.size(); ++k) {
        // Antithetic pairs are negatively correlated, so the independent standard error is an upper bound.
        const double se = std::sqrt(expected[k] * (1 - expected[k]) / walkers);
        EXPECT_NEAR(measured[k], expected[k], 4 * se + 1e-12) << "S(" << k << ")";
      }
    }
  }
}

// Every walker's own steps keep their law under every coupling: frequencies of the first and the second step.
TEST(Walks, StepsFollowTheirLawUnderEveryCoupling) {
  const Graph graph = Graph::from_dense(at::tensor({0.0, 1.0, -3.0, 4.0,  //
                                                    1.0, 0.0, 2.0, 0.0,   //
                                                    -3.0, 2.0, 0.0, 0.0,  //
                                                    4.0, 0.0, 0.0, 0.0})
                                            .reshape({4, 4}));
  for (const StepLaw step : {StepLaw::uniform, StepLaw::weighted}) {
    for (const Coupling coupling :
         {Coupling::independent, Coupling::antithetic, Coupling::repelling, Coupling::both}) {
      WalkOptions options;
      options.num_walks = 10;
      options.max_hops = 2;
      options.length = LengthLaw::fixed;
      options.step = step;
      options.coupling = coupling;
      constexpr int kTrials = 4000;
      // The last walker alone, so that trials are independent of each other.
      std::map<std::int32_t, double> first, second;
      for (int trial = 0; trial < kTrials; ++trial) {
        options.seed = static_cast<std::uint64_t>(trial);
        const at::Tensor walks = sample_walks(graph, options);
        first[at(walks, 0, 9, 1)] += 1.0 / kTrials;
        second[at(walks, 0, 9, 2)] += 1.0 / kTrials;
      }
      const bool uniform = step == StepLaw::uniform;
      const std::vector<double> p1 = uniform ? std::vector<double>{0, 1 / 3.0, 1 / 3.0, 1 / 3.0}
                                             : std::vector<double>{0, 1 / 8.0, 3 / 8.0, 4 / 8.0};
      const std::vector<double> p2 =
          uniform ? std::vector<double>{1 / 6.0 + 1 / 6.0 + 1 / 3.0, 1 / 6.0, 1 / 6.0, 0}
                  : std::vector<double>{1 / 24.0 + 9 / 40.0 + 1 / 2.0, 3 / 20.0, 1 / 12.0, 0};
      for (std::int32_t node = 0; node < 4; ++node) {
        EXPECT_NEAR(first[node], p1[node], 4 * std::sqrt(p1[node] * (1 - p1[node]) / kTrials) + 1e-12);
        EXPECT_NEAR(second[node], p2[node], 4 * std::sqrt(p2[node] * (1 - p2[node]) / kTrials) + 1e-12);
      }
    }
  }
}

TEST(Walks, RepellingWalkersSpreadOverTheNeighbours) {
  const Graph graph = random_regular(30, 6, 4);
  WalkOptions options;
  options.num_walks = 15;  // two full blocks of six and three more
  options.max_hops = 1;
  options.length = LengthLaw::fixed;
  options.coupling = Coupling::repelling;
  const at::Tensor walks = sample_walks(graph, options);
  for (std::int64_t i = 0; i < 30; ++i) {
    std::map<std::int32_t, int> visits;
    for (std::int64_t w = 0; w < 15; ++w) ++visits[at(walks, i, w, 1)];
    ASSERT_EQ(visits.size(), 6u);
    for (const auto& [node, count] : visits) EXPECT_TRUE(count == 2 || count == 3);
  }
  options.num_walks = 4;  // fewer walkers than neighbours: all different
  const at::Tensor few = sample_walks(graph, options);
  for (std::int64_t i = 0; i < 30; ++i) {
    std::map<std::int32_t, int> visits;
    for (std::int64_t w = 0; w < 4; ++w) ++visits[at(few, i, w, 1)];
    EXPECT_EQ(visits.size(), 4u);
  }
}

TEST(Walks, AntitheticPairsNeverHaltTogetherAtLowHaltProbability) {
  const Graph graph = cycle_graph(50);
  WalkOptions options;
  options.num_walks = 2;
  options.max_hops = 6;
  options.p_halt = 0.5;
  options.coupling = Coupling::antithetic;
  const at::Tensor walks = sample_walks(graph, options);
  for (std::int64_t i = 0; i < 50; ++i) {
    // With p_halt = 1/2 exactly one of t and t + 1/2 is below it: one halts at once, the other goes on.
    EXPECT_NE(at(walks, i, 0, 1) < 0, at(walks, i, 1, 1) < 0);
  }
}

TEST(Walks, DegenerateSizesAreDefined) {
  WalkOptions options;
  EXPECT_EQ(sample_walks(Graph(), options).size(0), 0);
  options.max_hops = 0;
  EXPECT_EQ(sample_walks(path_graph(3), options).sizes(), (std::vector<std::int64_t>{3, 16, 1}));
  options.max_hops = 4;
  options.p_halt = 1;
  EXPECT_EQ(sample_walks(path_graph(3), options).ge(0).sum().item<std::int64_t>(), 3 * 16);
}

void expect_error(const WalkOptions& options, const char* part) {
  testing::expect_error([&] { sample_walks(path_graph(3), options); }, part);
}

TEST(Walks, RejectSenselessOptions) {
  WalkOptions options;
  options.num_walks = 0;
  expect_error(options, "num_walks must be between 1 and");
  options.num_walks = 3;
  options.coupling = Coupling::antithetic;
  expect_error(options, "num_walks must be even, because antithetic coupling pairs the walkers, got 3");
  options.coupling = Coupling::independent;
  options.p_halt = 1.5;
  expect_error(options, "p_halt must be between 0 and 1, got 1.5");
  options.p_halt = std::nan("");
  expect_error(options, "p_halt must be between 0 and 1, got nan");
  options.p_halt = 0.5;
  options.max_hops = -1;
  expect_error(options, "max_hops must be between 0 and");
  options.max_hops = 2;
  options.length = LengthLaw::survival;
  options.survival = {1, 0.5};
  expect_error(options, "needs max_hops + 1 = 3 values");
  options.survival = {1, 0.5, 0.6};
  expect_error(options, "must not increase");
  options.survival = {0.9, 0.5, 0.4};
  expect_error(options, "must start with S(0) = 1");
}

}  // namespace
}  // namespace topomask
