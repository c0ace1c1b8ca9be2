// Every mask and combinator on a GPU against the same mask on the CPU in float64: products, matrices,
// gradients.
#include <functional>

#include "compare.h"
#include "gpu.h"
#include "topomask/error.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"

namespace topomask::testing {
namespace {

// A mask from its parameters, on whichever device they are; the graph it is made from is on the CPU.
struct MaskCase {
  std::string name;
  std::vector<at::Tensor> parameters;
  std::function<MaskPtr(const std::vector<at::Tensor>&, c10::Device)> make;
};

at::Tensor uniform(at::IntArrayRef shape, double low = 0.1, double high = 0.9) {
  return at::rand(shape, at::kDouble) * (high - low) + low;
}

Graph on(const Graph& graph, c10::Device device) {
  return {graph.row_ptr.to(device), graph.col.to(device), graph.weight.to(device), graph.directed};
}

Graph tree(std::int64_t n, const std::function<std::int32_t(std::int32_t)>& parent) {
  EdgeList edges;
  edges.num_nodes = n;
  for (std::int32_t i = 1; i < n; ++i) {
    if (parent(i) < 0) continue;
    edges.source.push_back(parent(i));
    edges.target.push_back(i);
  }
  return Graph::from_edges(edges);
}

std::vector<MaskCase> cases() {
  const Graph knn = normalise(knn_graph(at::rand({80, 3}), {5, true}), Normalisation::symmetric);
  const Graph star = tree(600, [](std::int32_t) { return 0; });
  std::vector<MaskCase> all = {
      {"none", {}, [](const auto&, c10::Device) { return std::make_shared<NoMask>(50); }},
      {"causal", {}, [](const auto&, c10::Device) { return std::make_shared<CausalMask>(70); }},
      {"toeplitz",
       {uniform({2, 2 * 9 - 1})},
       [](const auto& p, c10::Device) {
         return std::make_shared<ToeplitzMask>(std::vector<std::int64_t>{9}, p[0],
                                               OffsetTransform::exponential);
       }},
      {"block toeplitz",
       {uniform({2, 11 * 9 * 5})},
       [](const auto& p, c10::Device) {
         return std::make_shared<ToeplitzMask>(std::vector<std::int64_t>{6, 5, 3}, p[0]);
       }},
      {"hypercube",
       {uniform({3})},
       [](const auto& p, c10::Device) { return std::make_shared<HypercubeHeatMask>(7, p[0]); }},
      {"hypercube of one bit",
       {uniform({1})},
       [](const auto& p, c10::Device) {
         return std::make_shared<HypercubeHeatMask>(1, p[0], HypercubeHeatMask::Laplacian::normalised);
       }},
      {"shortest path",
       {uniform({2, 6})},
       [knn](const auto& p, c10::Device) { return std::make_shared<ShortestPathMask>(knn, p[0]); }},
      {"degree",
       {uniform({2, 8})},
       [knn](const auto& p, c10::Device) { return std::make_shared<DegreeMask>(knn, p[0]); }},
      {"neighbours",
       {},
       [knn](const auto&, c10::Device device) {
         return std::make_shared<NeighbourMask>(on(knn, device), 2);
       }},
      {"neighbours of a star",
       {},
       [star](const auto&, c10::Device device) {
         return std::make_shared<NeighbourMask>(on(star, device), 1);
       }},
      {"learned features",
       {uniform({2, 40, 5})},
       [](const auto& p, c10::Device) { return std::make_shared<LearnedFeaturesMask>(p[0]); }},
      {"dense",
       {uniform({2, 30, 30})},
       [](const auto& p, c10::Device) { return std::make_shared<DenseMask>(p[0]); }},
      {"power series",
       {uniform({2, 4})},
       [knn](const auto& p, c10::Device) { return std::make_shared<PowerSeriesMask>(knn, p[0]); }},
      {"power series of a star",
       {uniform({2, 3})},
       [star](const auto& p, c10::Device) { return std::make_shared<PowerSeriesMask>(star, p[0]); }},
      {"spe sine",
       {uniform({2, 3}), uniform({2, 3}), uniform({2, 3})},
       [](const auto& p, c10::Device) { return SpeMask::sine(45, p[0], p[1], p[2], 6, 1); }},
      {"spe convolutional", {uniform({2, 4}), uniform({2, 4})}, [](const auto& p, c10::Device) {
         return SpeMask::convolutional(45, p[0], p[1], 6, 1);
       }}};
  // A path, a star, a random tree, one of few levels and a forest of small trees, with lengths.
  const std::vector<std::pair<std::string, Graph>> forests = {
      {"path", tree(90, [](std::int32_t i) { return i - 1; })},
      {"star", star},
      {"tree", tree(120, [](std::int32_t i) { return (i * 7919) % i; })},
      {"wide tree", tree(400, [](std::int32_t i) { return (i - 1) / 8; })},
      {"forest", tree(60, [](std::int32_t i) { return i % 7 == 0 ? -1 : i - 1; })},
      {"one node", path_graph(1)}};
  for (const auto& [name, graph] : forests) {
    const Graph weighted = graph.with_weight(at::rand({graph.num_entries()}) + 0.5);
    all.push_back(
        {"forest: " + name, {uniform({2}, -0.5, -0.1), uniform({2})}, [graph](const auto& p, c10::Device) {
           return std::make_shared<ForestMask>(graph, p[0], p[1]);
         }});
  }
  return all;
}

// Masks made of two of them.
std::vector<MaskCase> combined_cases() {
  const Graph knn = normalise(knn_graph(at::rand({80, 3}), {5, true}), Normalisation::symmetric);
  const auto pattern = NeighbourMask(knn, 2).entries().front().pattern;
  const auto sparse = [pattern](const at::Tensor& values, c10::Device device) {
    return std::make_shared<SparseMask>(std::make_shared<const SparsePattern>(pattern->to(device)), values);
  };
  const std::vector<at::Tensor> values = {uniform({2, pattern->nnz()})};
  std::vector<MaskCase> all;
  all.push_back({"sparse", values, [=](const auto& p, c10::Device device) { return sparse(p[0], device); }});
  all.push_back({"sum", values, [=](const auto& p, c10::Device device) {
                   return std::make_shared<SumMask>(std::vector<MaskPtr>{
                       sparse(p[0], device), std::make_shared<NeighbourMask>(on(knn, device), 1)});
                 }});
  all.push_back({"low-rank sum", {uniform({2, 8})}, [=](const auto& p, c10::Device) {
                   return std::make_shared<SumMask>(std::vector<MaskPtr>{
                       std::make_shared<DegreeMask>(knn, p[0]), std::make_shared<NoMask>(80)});
                 }});
  all.push_back(
      {"scaled", {values[0], uniform({80}), uniform({2, 80})}, [=](const auto& p, c10::Device device) {
         return std::make_shared<ScaledMask>(sparse(p[0], device), p[1], p[2]);
       }});
  all.push_back({"scaled none", {uniform({80}), uniform({80})}, [=](const auto& p, c10::Device) {
                   return std::make_shared<ScaledMask>(std::make_shared<NoMask>(80), p[0], p[1]);
                 }});
  all.push_back({"global tokens", values, [=](const auto& p, c10::Device device) {
                   return std::make_shared<GlobalTokensMask>(sparse(p[0], device), 3);
                 }});
  all.push_back({"global tokens of low rank", {uniform({2, 8})}, [=](const auto& p, c10::Device) {
                   return std::make_shared<GlobalTokensMask>(std::make_shared<DegreeMask>(knn, p[0]), 2);
                 }});
  // Features with room for more than there is; many walks of a star meet in its centre.
  const Graph star = normalise(tree(600, [](std::int32_t) { return 0; }), Normalisation::random_walk);
  const auto padded = [](const Graph& graph, const at::Tensor& f, c10::Device device) {
    FeatureOptions options{.walks = {}, .ensembles = Ensembles::asymmetric, .padded = true};
    options.walks.num_walks = 12;
    return std::make_shared<GrfMask>(on(graph, device), options, f);
  };
  all.push_back({"padded", {uniform({2, 4})}, [=](const auto& p, c10::Device device) {
                   return padded(star, p[0], device);
                 }});
  all.push_back({"padded and scaled",
                 {uniform({2, 4}), uniform({80}), uniform({2, 80})},
                 [=](const auto& p, c10::Device device) {
                   return std::make_shared<ScaledMask>(padded(knn, p[0], device), p[1], p[2]);
                 }});
  all.push_back({"padded in a sum", {uniform({2, 4})}, [=](const auto& p, c10::Device device) {
                   return std::make_shared<SumMask>(std::vector<MaskPtr>{
                       padded(knn, p[0], device), std::make_shared<NeighbourMask>(on(knn, device), 1)});
                 }});
  all.push_back({"block diagonal", values, [=](const auto& p, c10::Device device) {
                   return std::make_shared<BlockDiagonalMask>(std::vector<MaskPtr>{
                       sparse(p[0], device), std::make_shared<NeighbourMask>(on(knn, device), 1)});
                 }});
  return all;
}

enum class View { apply, transposed, dense, entries, factors };

at::Tensor look(const Mask& mask, View view, const at::Tensor& x) {
  switch (view) {
    case View::apply:
      return mask.multiply(x);
    case View::transposed:
      return mask.multiply(x, true);
    case View::entries: {
      const SparseEntries entries = mask.entries().front();  // without what pads them
      const auto count = entries.pattern->row_ptr[mask.num_nodes()].item<std::int64_t>();
      return entries.values.narrow(1, 0, count).to(x.scalar_type()) * x.sum();
    }
    case View::factors: {
      const Factors factors = mask.factors();
      return at::matmul(factors.left, factors.right.transpose(-2, -1)).to(x) * x.sum();
    }
    default:
      return at::matmul(mask.dense(x.scalar_type()).to(x.device()), x);
  }
}

void compare(const MaskCase& each, at::ScalarType dtype) {
  const auto at_home = each.make(leaves_on(each.parameters, at::kCPU, at::kDouble), at::kCPU);
  std::vector<View> views = {View::apply, View::transposed, View::dense};
  if (at_home->profile().sparse()) views.push_back(View::entries);
  if (at_home->profile().rank > 0) views.push_back(View::factors);
  std::vector<at::Tensor> values = each.parameters;
  values.push_back(at::randn({at_home->heads(), at_home->num_nodes(), 37}, at::kDouble));
  for (const View view : views) {
    SCOPED_TRACE(::testing::Message()
                 << each.name << " " << c10::toString(dtype) << " view " << static_cast<int>(view));
    const auto run = [&](c10::Device device) {
      return [&, device](const std::vector<at::Tensor>& leaves) {
        const MaskPtr mask = each.make({leaves.begin(), leaves.end() - 1}, device);
        EXPECT_TRUE(!mask->device() || mask->device()->type() == device.type());
        return look(*mask, view, leaves.back());
      };
    };
    const auto expected = differentiate(run(at::kCPU), leaves_on(values, at::kCPU, at::kDouble));
    const auto leaves = leaves_on(values, at::kCUDA, dtype);
    const c10::Device gpu = leaves.back().device();
    const auto actual = differentiate(run(gpu), leaves);
    expect_close(actual, expected, tolerance_of(dtype));
    expect_identical(actual, differentiate(run(gpu), leaves));
  }
}

class MasksOnGpu : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    TOPOMASK_NEEDS_GPU();
    at::manual_seed(5);
  }
};

TEST_P(MasksOnGpu, AgreeWithTheCpu) {
  for (const MaskCase& each : cases()) compare(each, GetParam());
}

TEST_P(MasksOnGpu, AgreeWhenCombined) {
  for (const MaskCase& each : combined_cases()) compare(each, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MasksOnGpu, ::testing::Values(at::kFloat, at::kDouble));

TEST(MasksOnOneGpu, RefusesPartsOnTwoDevices) {
  TOPOMASK_NEEDS_GPU();
  const Graph grid = grid_graph({5, 5});
  const auto here = std::make_shared<NeighbourMask>(grid, 1);
  const auto there = std::make_shared<NeighbourMask>(on(grid, at::kCUDA), 1);
  EXPECT_THROW(SumMask({here, there}), Error);
  EXPECT_THROW(BlockDiagonalMask({here, there}), Error);
  EXPECT_THROW(ScaledMask(here, at::ones({25}, at::kCUDA), {}), Error);
  EXPECT_THROW(ForestMask(path_graph(4), at::ones({1}), at::ones({1}, at::kCUDA)), Error);
}

}  // namespace
}  // namespace topomask::testing
