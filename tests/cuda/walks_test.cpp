// Walks and features on a GPU against the CPU's: the same walkers, patterns and loads, bit for bit.
#include <ATen/ATen.h>

#include <cmath>

#include "gpu.h"
#include "sample_graphs.h"
#include "topomask/error.h"
#include "topomask/features.h"

namespace topomask {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

struct WalkCase {
  std::string name;
  WalkOptions options;
};

std::vector<WalkCase> walk_cases() {
  std::vector<WalkCase> cases;
  const auto add = [&](const char* name, WalkOptions options) {
    for (const StepLaw step : {StepLaw::uniform, StepLaw::weighted}) {
      for (const Coupling coupling :
           {Coupling::independent, Coupling::antithetic, Coupling::repelling, Coupling::both}) {
        options.step = step;
        options.coupling = coupling;
        options.seed = 0x123456789ull + cases.size();
        options.ensemble = static_cast<std::uint32_t>(cases.size() % 3);
        cases.push_back({std::string(name) + (step == StepLaw::weighted ? ", weighted" : ", uniform") +
                             ", coupling " + std::to_string(static_cast<int>(coupling)),
                         options});
      }
    }
  };
  add("n 16, p .5", testing::geometric_walks(16));
  add("n 6, p .1, long", testing::geometric_walks(6, 70, 0.1));
  add("n 100, p .3", testing::geometric_walks(100, 20, 0.3));
  WalkOptions fixed = testing::geometric_walks(32, 3);
  fixed.length = LengthLaw::fixed;
  add("fixed", fixed);
  WalkOptions survival = testing::geometric_walks(34, 4);
  survival.length = LengthLaw::survival;
  survival.survival = {1, 0.9, 0.9, 0.2, 0};
  add("survival", survival);
  add("one hop or none", testing::geometric_walks(2, 1, 0.9));
  add("no hops", testing::geometric_walks(4, 0));
  return cases;
}

void expect_same(const WalkFeatures& on_gpu, const WalkFeatures& expected) {
  const WalkFeatures got = on_gpu.to(at::kCPU);
  ASSERT_TRUE(on_gpu.load.is_cuda());
  EXPECT_TRUE(at::equal(got.row_ptr, expected.row_ptr));
  EXPECT_TRUE(at::equal(got.col, expected.col));
  EXPECT_TRUE(at::equal(got.deposit_ptr, expected.deposit_ptr));
  EXPECT_TRUE(at::equal(got.hop, expected.hop));
  EXPECT_TRUE(at::equal(got.load, expected.load));
  EXPECT_EQ(got.exact, expected.exact);
  EXPECT_EQ(got.max_hops, expected.max_hops);
  EXPECT_EQ(got.num_columns, expected.num_columns);
}

class CudaWalks : public testing::OnEveryGraph {};
INSTANTIATE_TEST_SUITE_P(Graphs, CudaWalks, ::testing::ValuesIn(testing::sample_graphs()),
                         testing::name_of_graph);

TEST_P(CudaWalks, AreTheSameWalkerByWalker) {
  const Graph& graph = GetParam().graph;
  const Graph on_gpu = graph.to(kGpu);
  for (const WalkCase& c : walk_cases()) {
    SCOPED_TRACE(c.name);
    const at::Tensor paths = sample_walks(on_gpu, c.options);
    ASSERT_TRUE(paths.is_cuda());
    ASSERT_TRUE(at::equal(paths.cpu(), sample_walks(graph, c.options)));
  }
}

TEST_P(CudaWalks, GiveTheSameFeaturesBitForBit) {
  const Graph& graph = GetParam().graph;
  const Graph on_gpu = graph.to(kGpu);
  for (const WalkCase& c : walk_cases()) {
    for (const bool importance : {true, false}) {
      SCOPED_TRACE(c.name);
      expect_same(sample_walk_features(on_gpu, c.options, importance),
                  sample_walk_features(graph, c.options, importance));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// With room for more than there is: the same rows, and nothing behind them.
TEST_P(CudaWalks, GiveTheSamePaddedFeatures) {
  const Graph& graph = GetParam().graph;
  const Graph on_gpu = graph.to(kGpu);
  for (const WalkCase& c : walk_cases()) {
    SCOPED_TRACE(c.name);
    const WalkFeatures padded = sample_walk_features(on_gpu, c.options, true, /*padded=*/true),
                       expected = sample_walk_features(graph, c.options);
    expect_same(padded, expected);
    EXPECT_FALSE(padded.trimmed().padded);
    if (graph.num_nodes() == 0) continue;
    EXPECT_TRUE(padded.padded);
    const at::Tensor f = at::rand({2, 5}, padded.load.options()).requires_grad_(),
                     f_cpu = f.detach().cpu().requires_grad_();
    const at::Tensor values = padded.values(f), own = expected.values(f_cpu);
    EXPECT_TRUE(at::equal(values.narrow(1, 0, expected.nnz()).cpu(), own));
    EXPECT_EQ(values.slice(1, expected.nnz()).count_nonzero().item<std::int64_t>(), 0);
    EXPECT_EQ(padded.col.slice(0, expected.nnz()).count_nonzero().item<std::int64_t>(), 0);
    const at::Tensor grad = at::randn_like(values);
    values.backward(grad);
    own.backward(grad.narrow(1, 0, expected.nnz()).cpu());
    EXPECT_TRUE(at::allclose(f.grad().cpu(), f_cpu.grad(), 1e-5, 1e-5));
    if (::testing::Test::HasFailure()) return;
  }
}

// Walks of a node, their coupling, and a side of the grid: rows of few columns and of many.
class CudaLargeRows : public testing::OnGpu<std::tuple<std::int64_t, Coupling, std::int64_t>> {};

// A block per row in shared memory, then beyond it.
TEST_P(CudaLargeRows, AreTheSameBitForBit) {
  const auto [num_walks, coupling, side] = GetParam();
  const Graph graph = normalise(grid_graph({side, side + 2}), Normalisation::symmetric);
  WalkOptions options = testing::geometric_walks(num_walks, 100, 0.1);
  options.coupling = coupling;
  expect_same(sample_walk_features(graph.to(kGpu), options), sample_walk_features(graph, options));
}

std::string name_of_large_row(const ::testing::TestParamInfo<CudaLargeRows::ParamType>& info) {
  const auto [num_walks, coupling, side] = info.param;
  return std::to_string(num_walks) + (coupling == Coupling::both ? "_coupled_side_" : "_side_") +
         std::to_string(side);
}
INSTANTIATE_TEST_SUITE_P(Walks, CudaLargeRows,
                         ::testing::Combine(::testing::Values(700, 4000),
                                            ::testing::Values(Coupling::independent, Coupling::both),
                                            ::testing::Values(3, 9)),
                         name_of_large_row);

// A length law so wide that some rows exceed what rows usually need.
TEST(CudaFeatures, DoRareLongRowsAgain) {
  TOPOMASK_NEEDS_GPU();
  const Graph graph = normalise(grid_graph({90, 110}), Normalisation::symmetric);
  WalkOptions wide = testing::geometric_walks(4, 400);
  wide.length = LengthLaw::survival;
  wide.survival.assign(401, 0.02);
  wide.survival[0] = 1;
  expect_same(sample_walk_features(graph.to(kGpu), wide), sample_walk_features(graph, wide));
}

TEST(CudaFeatures, EnumerateExactNeighbourhoods) {
  TOPOMASK_NEEDS_GPU();
  const std::vector<float> cloud = testing::bumpy_sphere(2000, 3);
  const at::Tensor points = at::tensor(cloud).view({-1, 3});
  for (const std::int64_t k : {1, 2, 3, 5}) {
    const Graph graph = normalise(knn_graph(points, {.k = k}), Normalisation::random_walk),
                on_gpu = graph.to(kGpu);
    for (const bool importance : {true, false}) {
      const WalkOptions options = testing::exhaustive_walks(k, 3);
      const WalkFeatures expected = sample_walk_features(graph, options, importance);
      EXPECT_TRUE(expected.exact);
      expect_same(sample_walk_features(on_gpu, options, importance), expected);
      const WalkFeatures padded = sample_walk_features(on_gpu, options, importance, /*padded=*/true);
      expect_same(padded, expected);
      EXPECT_EQ(padded.num_deposits(), 2000 * (1 + k + k * k + k * k * k));
    }
  }
  // More rows than a device works on at once.
  const Graph large = knn_graph(at::tensor(testing::bumpy_sphere(60000, 4)).view({-1, 3}), {.k = 3});
  expect_same(sample_walk_features(large.to(kGpu), testing::exhaustive_walks(3, 3), true, /*padded=*/true),
              sample_walk_features(large, testing::exhaustive_walks(3, 3)));
  // The same without knowing that all rows have three entries.
  Graph unknown = large;
  unknown.out_degree = -1;
  expect_same(sample_walk_features(unknown.to(kGpu), testing::exhaustive_walks(3, 3), true, /*padded=*/true),
              sample_walk_features(unknown, testing::exhaustive_walks(3, 3)));
  // Sinks: the mean degree is 2, the degree of all others 4.
  CsrArrays rows;
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 4 && i % 2 == 0; ++j) {
      rows.col.push_back((i + 3 * j + 1) % 40 / 8 * 8 + 2 * j);
      rows.weight.push_back(0.25f);
    }
    rows.row_ptr.push_back(static_cast<std::int64_t>(rows.col.size()));
  }
  const Graph sinks = Graph::from_csr(std::move(rows), true);
  const WalkOptions options = testing::exhaustive_walks(4, 3);
  expect_same(sample_walk_features(sinks.to(kGpu), options), sample_walk_features(sinks, options));
}

TEST(CudaFeatures, KeysWalkOnTheTranspose) {
  TOPOMASK_NEEDS_GPU();
  const Graph graph = testing::random_directed(300, 4);
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    const FeatureOptions options{.walks = testing::geometric_walks(8), .ensembles = ensembles};
    const GraphFeatures expected = sample_features(graph, options),
                        got = sample_features(graph.to(kGpu), options);
    expect_same(got.query, expected.query);
    expect_same(got.key, expected.key);
  }
  const Graph symmetric = karate_club().to(kGpu);
  const GraphFeatures shared = sample_features(symmetric, {});
  EXPECT_TRUE(shared.key.col.is_same(shared.query.col));
}

TEST_P(CudaWalks, GiveTheSameValuesAndGradients) {
  at::manual_seed(1);
  const WalkFeatures features = sample_walk_features(GetParam().graph, testing::geometric_walks(8, 60, 0.2));
  const WalkFeatures on_gpu = features.to(kGpu);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const std::int64_t heads : {1, 3, 8, 11}) {
      SCOPED_TRACE("heads " + std::to_string(heads));
      for (const std::int64_t terms : {1, 10, 61}) {
        const at::Tensor f = at::randn({heads, terms}, dtype).requires_grad_();
        const at::Tensor f_gpu = f.detach().to(kGpu).requires_grad_();
        const at::Tensor values = features.values(f), values_gpu = on_gpu.values(f_gpu);
        EXPECT_TRUE(at::equal(values_gpu.cpu(), values));
        const at::Tensor grad = at::randn_like(values);
        values.backward(grad);
        values_gpu.backward(grad.to(kGpu));
        // Both add up in double; only the order differs.
        const double tolerance = dtype == at::kDouble ? 1e-12 : 1e-5;
        EXPECT_TRUE(at::allclose(f_gpu.grad().cpu(), f.grad(), tolerance, tolerance));
      }
    }
  }
  const at::Tensor f = at::randn({5}, at::kDouble);
  EXPECT_TRUE(at::equal(on_gpu.to_dense(f.to(kGpu)).cpu(), features.to_dense(f)));
}

TEST(CudaFeatures, AreTheSameAtEveryRun) {
  TOPOMASK_NEEDS_GPU();
  const Graph graph = normalise(barabasi_albert(4000, 3, 5), Normalisation::symmetric).to(kGpu);
  const WalkFeatures features = sample_walk_features(graph, {});
  const at::Tensor grad = at::randn({4, features.nnz()}, features.load.options());
  at::Tensor first;
  for (int run = 0; run < 5; ++run) {
    const at::Tensor f = at::ones({4, 11}, features.load.options()).requires_grad_();
    features.values(f).backward(grad);
    if (run == 0) first = f.grad();
    EXPECT_TRUE(at::equal(first, f.grad()));
  }
}

TEST(CudaFeatures, RefuseAnOutDegreeThatCannotBe) {
  TOPOMASK_NEEDS_GPU();
  Graph graph = karate_club().to(kGpu);
  graph.out_degree = 3;
  EXPECT_THROW(sample_walk_features(graph, {}), Error);
}

TEST(CudaFeatures, RefuseAModulationElsewhere) {
  TOPOMASK_NEEDS_GPU();
  const WalkFeatures features = sample_walk_features(karate_club().to(kGpu), {});
  EXPECT_THROW(features.values(at::ones({3})), Error);
}

}  // namespace
}  // namespace topomask
