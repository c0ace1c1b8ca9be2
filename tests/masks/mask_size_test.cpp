#include "topomask/mask_size.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/small_graphs.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"

namespace topomask {
namespace {

struct Counted {
  double feature_entries, entries;
};

Counted count(const Graph& graph, const FeatureOptions& options) {
  const GrfMask mask(graph, options, at::ones({options.walks.max_hops + 1}, at::kDouble));
  mask.entries();  // makes the pattern, which is then counted
  return {static_cast<double>(mask.feature_nnz()), static_cast<double>(mask.profile().entries)};
}

TEST(MaskSize, OfSmallGraphsIsCounted) {
  for (const Graph& graph : {karate_club(), test::directed_graph(), grid_graph({12, 12}), path_graph(1)}) {
    for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
      FeatureOptions options;
      options.ensembles = ensembles;
      const MaskSize size = predict_mask_size(graph, options);
      const Counted counted = count(graph, options);
      EXPECT_EQ(size.entries, counted.entries) << graph.num_nodes() << " nodes";
      EXPECT_EQ(size.feature_entries, counted.feature_entries);
      EXPECT_EQ(size.asymmetric_entries, counted.feature_entries);
      EXPECT_EQ(size.entries_se, 0);
      EXPECT_EQ(size.bytes, 20 * counted.entries);
      EXPECT_EQ(size.advice, "");
    }
  }
  EXPECT_EQ(predict_mask_size(Graph(), {}).entries, 0);
}

// The exhaustive ensemble of point clouds is enumerated here as it is there.
TEST(MaskSize, OfAnExhaustiveEnsembleIsCounted) {
  FeatureOptions options;
  options.ensembles = Ensembles::asymmetric;
  options.walks.num_walks = 4;
  options.walks.max_hops = 2;
  options.walks.length = LengthLaw::fixed;
  options.walks.coupling = Coupling::repelling;
  const Graph cycle = cycle_graph(30);
  EXPECT_EQ(predict_mask_size(cycle, options).entries, 30 * 5);
}

TEST(MaskSize, OfLargeGraphsIsWithinItsStandardErrors) {
  struct Case {
    const char* name;
    Graph graph;
  };
  const Case cases[] = {{"grid", grid_graph({150, 150})},
                        {"hubs", barabasi_albert(12000, 3, 1)},
                        {"directed", knn_graph(at::rand({6000, 3}), {4, false})}};
  for (const auto& [name, graph] : cases) {
    for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
      FeatureOptions options;
      options.ensembles = ensembles;
      options.walks.num_walks = 8;
      options.walks.p_halt = 0.3;
      const MaskSize size = predict_mask_size(graph, options);
      const Counted counted = count(graph, options);
      EXPECT_NEAR(size.entries, counted.entries, 4 * size.entries_se) << name;
      EXPECT_LT(size.entries_se, 0.2 * counted.entries) << name;
      EXPECT_NEAR(size.feature_entries, counted.feature_entries, 0.1 * counted.feature_entries) << name;
    }
  }
}

TEST(MaskSize, AdvisesWhereTheMaskIsLarge) {
  const Graph hubs = barabasi_albert(3000, 3, 1);
  FeatureOptions options;
  options.walks.num_walks = 16;
  MaskSizeOptions limits;
  limits.heads = 4;
  limits.large_bytes = 1e6;
  const MaskSize shared = predict_mask_size(hubs, options, limits);
  EXPECT_GT(shared.entries, 4 * shared.asymmetric_entries);
  EXPECT_DOUBLE_EQ(shared.bytes, 32 * shared.entries);
  EXPECT_THAT(shared.advice, ::testing::HasSubstr("ensembles = asymmetric has about"));
  EXPECT_THAT(shared.advice, ::testing::HasSubstr(" entries ("));
  options.ensembles = Ensembles::asymmetric;
  EXPECT_THAT(predict_mask_size(hubs, options, limits).advice, ::testing::HasSubstr("fewer walks"));
  limits.large_bytes = 1e12;
  EXPECT_EQ(predict_mask_size(hubs, options, limits).advice, "");
  limits.heads = 0;
  EXPECT_THROW(predict_mask_size(hubs, options, limits), Error);
  options.walks.p_halt = 2;
  EXPECT_THROW(predict_mask_size(hubs, options), Error);
}

}  // namespace
}  // namespace topomask
