// Two triangles and a hexagon: the same to 1-WL, also with the colours a, b, c along both, and so to message
// passing and to unmasked attention. Which masks tell them apart? (Paper, Sec. 3.4; docs/mathematics.md.)
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "masks/gradcheck.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/mask_combinators.h"
#include "topomask/masks.h"

namespace topomask {
namespace {

using oracle::test_values;

Graph two_triangles() {
  return Graph::from_csr(
      {{0, 2, 4, 6, 8, 10, 12}, {1, 2, 0, 2, 0, 1, 4, 5, 3, 5, 3, 4}, std::vector<float>(12, 1.0f)}, false);
}

// Nodes 0..5 are coloured a, b, c, a, b, c: every node sees one of each other colour, in both graphs.
const std::vector<Graph>& both_graphs() {
  static const std::vector<Graph> graphs = {normalise(two_triangles(), Normalisation::symmetric),
                                            normalise(cycle_graph(6), Normalisation::symmetric)};
  return graphs;
}

// [1, 1, 6, d]: a vector for each colour, or one for all.
at::Tensor coloured(int salt, bool constant) {
  const at::Tensor colours = test_values({3, 4}, salt);
  return (constant ? colours.slice(0, 0, 1).expand({6, 4}) : colours.repeat({2, 1}))
      .view({1, 1, 6, 4})
      .contiguous();
}

// The mean over all nodes, after a nonlinearity.
at::Tensor pooled(const MaskPtr& mask, bool constant, AttentionKind kind = AttentionKind::linear) {
  AttentionOptions options;
  options.kind = kind;
  return attention(coloured(1, constant), coloured(2, constant), coloured(3, constant), mask, options)
      .tanh()
      .mean({0, 1, 2});
}

double difference_of(const std::vector<MaskPtr>& masks, bool constant,
                     AttentionKind kind = AttentionKind::linear) {
  return oracle::max_difference(pooled(masks[0], constant, kind), pooled(masks[1], constant, kind));
}

// With both signs among the entries of M.
const at::Tensor& signed_terms() {
  static const at::Tensor terms = at::tensor({2.0, -1.0, 1.8, -0.8}, at::kDouble);
  return terms;
}

std::vector<MaskPtr> of_both(const std::function<MaskPtr(const Graph&)>& make) {
  return {make(both_graphs()[0]), make(both_graphs()[1])};
}

TEST(Expressivity, MessagePassingAndUnmaskedAttentionSeeNoDifference) {
  std::vector<at::Tensor> states(2, coloured(1, false).view({6, 4}));
  for (int layer = 0; layer < 4; ++layer) {
    const at::Tensor own = test_values({4, 4}, 10 + layer), others = test_values({4, 4}, 20 + layer);
    for (std::size_t g = 0; g < 2; ++g)
      states[g] =
          at::tanh(states[g].mm(own) + both_graphs()[g].to_dense().to(at::kDouble).mm(states[g]).mm(others));
  }
  EXPECT_LE(oracle::max_difference(states[0].mean(0), states[1].mean(0)), 1e-12);
  const MaskPtr none = std::make_shared<NoMask>(6);
  EXPECT_LE(difference_of({none, none}, false), 1e-12);
}

// Every sum over the nodes of one colour of a row of W^k is what 1-WL counts. So masks that are polynomials
// of W, though they differ, give equal outputs: against what the paper says.
TEST(Expressivity, PolynomialsOfWSeeNoDifferenceEither) {
  const auto masks =
      of_both([](const Graph& graph) { return std::make_shared<PowerSeriesMask>(graph, signed_terms()); });
  EXPECT_GT(oracle::max_difference(masks[0]->dense(at::kDouble), masks[1]->dense(at::kDouble)), 0.1);
  for (const AttentionKind kind : {AttentionKind::linear, AttentionKind::softmax})
    EXPECT_LE(difference_of(masks, false, kind), 1e-12);
}

TEST(Expressivity, FunctionsOfEntriesTellThemApart) {
  const auto magnitudes = of_both([](const Graph& graph) {
    return std::make_shared<AbsoluteMask>(
        std::make_shared<DenseMask>(PowerSeriesMask(graph, signed_terms()).dense(at::kDouble)));
  });
  EXPECT_GT(difference_of(magnitudes, false), 1e-4);
  // M added to the logits, that is exp(M) as a factor.
  const auto biases = of_both([](const Graph& graph) {
    return std::make_shared<DenseMask>(PowerSeriesMask(graph, signed_terms()).dense(at::kDouble).exp());
  });
  EXPECT_GT(difference_of(biases, false, AttentionKind::softmax), 1e-4);
  // Where all nodes have the same features, an average of values is that value, whatever the weights.
  EXPECT_LE(difference_of(magnitudes, true), 1e-12);
  EXPECT_LE(difference_of(biases, true, AttentionKind::softmax), 1e-12);
}

// Graph random features with shared walks tell them apart on average, by the bias of their diagonal: it
// depends on how walks of a node meet. Independent ones have no such bias.
TEST(Expressivity, SharedWalksTellThemApartByTheirDiagonal) {
  constexpr int kTrials = 1500;
  const oracle::OneThread one_thread;
  const auto z_score = [&](Ensembles ensembles) {
    double sum = 0, squares = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      FeatureOptions options;
      options.walks.num_walks = 2;
      options.walks.max_hops = 3;
      options.walks.p_halt = 0.2;
      options.walks.seed = static_cast<std::uint64_t>(trial);
      options.ensembles = ensembles;
      // Linear in M, so that the mean over draws is that of the expected mask.
      const auto own_colour = [&](const Graph& graph) {
        const GraphFeatures features = sample_features(graph, options);
        const at::Tensor f = at::tensor({1.0, 0.9, 0.8, 0.7}, at::kDouble);
        const at::Tensor m = features.query.to_dense(f).mm(features.key.to_dense(f).t());
        return (m.diagonal().sum() + m.diagonal(3).sum() + m.diagonal(-3).sum()).item<double>();
      };
      const double difference = own_colour(both_graphs()[0]) - own_colour(both_graphs()[1]);
      sum += difference;
      squares += difference * difference;
    }
    const double mean = sum / kTrials;
    return mean / std::sqrt((squares / kTrials - mean * mean) / kTrials);
  };
  EXPECT_GT(std::abs(z_score(Ensembles::shared)), 6);
  EXPECT_LT(std::abs(z_score(Ensembles::independent)), 4);
}

}  // namespace
}  // namespace topomask
