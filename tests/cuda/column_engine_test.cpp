// The feature engine by columns on a GPU against the mask engine on the CPU in float64.
#include "compare.h"
#include "sample_graphs.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"

namespace topomask::testing {
namespace {

struct Sizes {
  std::int64_t batch, heads, features, value_columns;
};

// q, k, v and f, rounded to a type, and the same on any device in any type.
std::vector<at::Tensor> operands(const Sizes& sizes, std::int64_t n, std::int64_t mask_heads,
                                 at::ScalarType rounded) {
  std::vector<at::Tensor> values;
  for (const std::int64_t columns : {sizes.features, sizes.features, sizes.value_columns})
    values.push_back(at::randn({sizes.batch, sizes.heads, n, columns}).to(rounded).to(at::kDouble));
  // At zero, where max(x, 0) has two derivatives, all engines take the same.
  for (at::Tensor& x : values) x.masked_fill_(at::rand(x.sizes()) < 0.02, 0);
  const at::Tensor hops = at::arange(7, at::kDouble);
  values.push_back((hops * -0.4).exp() * (at::rand({mask_heads, 1}, at::kDouble) + 0.5));
  return values;
}

// Normalisers must not come close to zero, or rounding decides.
Graph with_positive_weights(Graph graph) {
  graph.weight = graph.weight.abs();
  return graph;
}

class ColumnEngineOnGpu : public OnEveryGraph {};

TEST_P(ColumnEngineOnGpu, AgreesWithTheMaskEngine) {
  at::manual_seed(5);
  const Graph graph = with_positive_weights(GetParam().graph);
  const std::vector<Sizes> all = {
      {1, 2, 64, 64}, {2, 2, 16, 8}, {1, 1, 72, 136}, {1, 2, 10, 7}, {1, 1, 32, 24}};
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent}) {
    FeatureOptions features;
    features.walks = geometric_walks(12, 6, 0.3);
    features.ensembles = ensembles;
    const GraphFeatures here = sample_features(graph, features),
                        there = sample_features(graph.to(at::kCUDA), features);
    for (const Sizes& sizes : all) {
      for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kHalf, at::kDouble}) {
        for (const std::int64_t mask_heads : {std::int64_t{1}, sizes.heads}) {
          SCOPED_TRACE(::testing::Message()
                       << word_of(ensembles) << ", " << sizes.features << " features, " << sizes.value_columns
                       << " columns, " << c10::toString(dtype) << ", heads " << mask_heads);
          const auto values = operands(sizes, graph.num_nodes(), mask_heads, dtype);
          const auto run = [&](const std::vector<at::Tensor>& x) {
            AttentionOptions options;
            options.engine = x[0].is_cuda() ? Engine::feature : Engine::mask;
            const GraphFeatures& own = x[0].is_cuda() ? there : here;
            return attention(x[0], x[1], x[2],
                             std::make_shared<GrfMask>(std::vector<GraphFeatures>{own}, x[3]), options);
          };
          const auto actual = differentiate(run, attention_leaves(values, at::kCUDA, dtype));
          expect_close(actual, differentiate(run, attention_leaves(values, at::kCPU, at::kDouble)),
                       tolerance_of(dtype));
          expect_identical(actual, differentiate(run, attention_leaves(values, at::kCUDA, dtype)));
        }
      }
    }
  }
}

TEST_P(ColumnEngineOnGpu, TakesWalksOfItsOwnForEveryHead) {
  at::manual_seed(6);
  const Graph graph = with_positive_weights(GetParam().graph), there = graph.to(at::kCUDA);
  FeatureOptions features;
  features.walks = geometric_walks(8, 6, 0.3);
  const Sizes sizes = {2, 3, 32, 32};
  for (const at::ScalarType dtype : {at::kBFloat16, at::kDouble}) {
    const auto values = operands(sizes, graph.num_nodes(), sizes.heads, dtype);
    const auto run = [&](const std::vector<at::Tensor>& x) {
      AttentionOptions options;
      options.engine = x[0].is_cuda() ? Engine::feature : Engine::mask;
      return attention(x[0], x[1], x[2], GrfMask::per_head(x[0].is_cuda() ? there : graph, features, x[3]),
                       options);
    };
    expect_close(differentiate(run, attention_leaves(values, at::kCUDA, dtype)),
                 differentiate(run, attention_leaves(values, at::kCPU, at::kDouble)), tolerance_of(dtype));
  }
}

// Columns of hubs are cut into chunks: here one of 2001 rows.
std::vector<NamedGraph> graphs_with_a_hub() {
  std::vector<NamedGraph> graphs = sample_graphs();
  graphs.push_back({"hub", normalise(complete_tree(1, 2000), Normalisation::symmetric)});
  return graphs;
}

INSTANTIATE_TEST_SUITE_P(Graphs, ColumnEngineOnGpu, ::testing::ValuesIn(graphs_with_a_hub()), name_of_graph);

// Without a mask, on tensor cores and elsewhere; sizes around the chunks of the kernels.
TEST(UnmaskedOnGpu, AgreesWithTheCpu) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(7);
  for (const std::int64_t n : {1, 15, 127, 128, 129, 1000, 40000}) {
    for (const Sizes& sizes :
         {Sizes{1, 2, 64, 64}, Sizes{2, 3, 24, 40}, Sizes{1, 1, 64, 128}, Sizes{1, 1, 128, 64}}) {
      SCOPED_TRACE(::testing::Message() << n << " nodes, " << sizes.features << " features");
      auto values = operands(sizes, n, 1, at::kBFloat16);
      values.pop_back();
      const auto run = [&](const std::vector<at::Tensor>& x) {
        AttentionOptions options;
        options.engine = Engine::feature;
        return attention(x[0], x[1], x[2], std::make_shared<NoMask>(n), options);
      };
      const auto actual = differentiate(run, attention_leaves(values, at::kCUDA, at::kBFloat16));
      expect_close(actual, differentiate(run, attention_leaves(values, at::kCPU, at::kDouble)),
                   tolerance_of(at::kBFloat16));
      expect_identical(actual, differentiate(run, attention_leaves(values, at::kCUDA, at::kBFloat16)));
    }
  }
}

}  // namespace
}  // namespace topomask::testing
