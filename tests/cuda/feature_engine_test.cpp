// The feature engine on a GPU against the CPU in float64, for masks of every kind of product.
#include "compare.h"
#include "gpu.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"

namespace topomask::testing {
namespace {

// The mask from one parameter [2, size]; all are for 64 nodes.
struct MaskCase {
  std::string name;
  at::Tensor parameter;
  std::function<MaskPtr(const at::Tensor&)> make;
};

std::vector<MaskCase> cases() {
  const Graph grid = normalise(grid_graph({8, 8}), Normalisation::symmetric);
  const auto uniform = [](std::int64_t size) { return at::rand({2, size}, at::kDouble) * 0.5 + 0.2; };
  return {
      {"power series", uniform(4),
       [grid](const at::Tensor& p) { return std::make_shared<PowerSeriesMask>(grid, p); }},
      {"toeplitz", uniform(15 * 15),
       [](const at::Tensor& p) {
         return std::make_shared<ToeplitzMask>(std::vector<std::int64_t>{8, 8}, p);
       }},
      {"degree", uniform(6), [grid](const at::Tensor& p) { return std::make_shared<DegreeMask>(grid, p); }},
      {"hypercube", uniform(1),
       [](const at::Tensor& p) { return std::make_shared<HypercubeHeatMask>(6, p.squeeze(1)); }},
      {"forest", uniform(1),
       [](const at::Tensor& p) {
         return std::make_shared<ForestMask>(path_graph(64), -p.squeeze(1), p.squeeze(1));
       }},
      {"features of high rank", uniform(64 * 12),
       [](const at::Tensor& p) {
         return std::make_shared<LearnedFeaturesMask>(p.view({2, 64, 12}));
       }},
      {"none", uniform(1), [](const at::Tensor&) { return std::make_shared<NoMask>(64); }},
      {"causal", uniform(1), [](const at::Tensor&) { return std::make_shared<CausalMask>(64); }}};
}

TEST(FeatureEngineOnGpu, AgreesWithTheCpu) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(3);
  for (const MaskCase& each : cases()) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const std::int64_t workspace : {std::int64_t{1} << 31, std::int64_t{1} << 20}) {
        SCOPED_TRACE(::testing::Message() << each.name << " " << c10::toString(dtype) << " " << workspace);
        AttentionOptions options;
        options.engine = Engine::feature;
        options.max_workspace = workspace;
        std::vector<at::Tensor> values;
        for (const std::int64_t columns : {10, 10, 7})
          values.push_back(at::randn({2, 2, 64, columns}).to(dtype).to(at::kDouble));
        values.push_back(each.parameter);
        const auto run = [&](const std::vector<at::Tensor>& x) {
          return attention(x[0], x[1], x[2], each.make(x[3]), options);
        };
        const auto actual = differentiate(run, attention_leaves(values, at::kCUDA, dtype));
        EXPECT_EQ(actual.result.scalar_type(), dtype);
        const auto expected = differentiate(run, attention_leaves(values, at::kCPU, at::kDouble));
        expect_close(actual, expected, tolerance_of(dtype));
      }
    }
  }
}

TEST(FeatureMapsOnGpu, AgreeWithTheCpu) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(4);
  const Graph grid = grid_graph({8, 8});
  for (const FeatureMapKind kind : {FeatureMapKind::identity, FeatureMapKind::relu, FeatureMapKind::elu1,
                                    FeatureMapKind::squared_relu, FeatureMapKind::favor}) {
    for (const Engine engine : {Engine::dense, Engine::feature, Engine::mask}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(kind) << " " << static_cast<int>(engine));
      AttentionOptions options;
      options.engine = engine;
      options.feature_map.kind = kind;
      options.feature_map.num_features = 24;
      std::vector<at::Tensor> values;
      for (const std::int64_t columns : {16, 16, 8}) {
        const at::Tensor x = at::randn({2, 2, 64, columns}).to(at::kBFloat16).to(at::kDouble);
        values.push_back(kind == FeatureMapKind::identity ? x.abs()
                                                          : x);  // or normalisers come close to zero
      }
      const auto run = [&](const std::vector<at::Tensor>& x) {
        const auto there = [&](const at::Tensor& part) { return part.to(x[0].device()); };
        const Graph graph = {there(grid.row_ptr), there(grid.col), there(grid.weight), grid.directed};
        return attention(x[0], x[1], x[2], std::make_shared<NeighbourMask>(graph, 2), options);
      };
      const auto expected = differentiate(run, leaves_on(values, at::kCPU, at::kDouble));
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16})
        expect_close(differentiate(run, leaves_on(values, at::kCUDA, dtype)), expected, tolerance_of(dtype));
    }
  }
}

}  // namespace
}  // namespace topomask::testing
