// M_hat on a GPU against the CPU's: pattern, values and the gradient of f.
#include <ATen/ATen.h>

#include "gpu.h"
#include "masks/cuda/sparse_product.h"
#include "masks/gpu.h"
#include "sample_graphs.h"
#include "topomask/error.h"
#include "topomask/grf_mask.h"

namespace topomask {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

void expect_same_pattern(const SparsePattern& got, const SparsePattern& expected) {
  EXPECT_TRUE(at::equal(got.row_ptr.cpu(), expected.row_ptr));
  EXPECT_TRUE(at::equal(got.col.cpu(), expected.col));
}

std::vector<testing::NamedGraph> graphs_with_nodes() {
  std::vector<testing::NamedGraph> graphs = testing::sample_graphs();
  std::erase_if(graphs, [](const auto& named) { return named.graph.num_nodes() == 0; });
  return graphs;
}

class CudaSparseProduct : public testing::OnEveryGraph {};
INSTANTIATE_TEST_SUITE_P(Graphs, CudaSparseProduct, ::testing::ValuesIn(graphs_with_nodes()),
                         testing::name_of_graph);

TEST_P(CudaSparseProduct, IsTheCpus) {
  const Graph& graph = GetParam().graph;
  at::manual_seed(3);
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    const FeatureOptions options{.walks = testing::geometric_walks(12, 6), .ensembles = ensembles};
    const at::Tensor any = at::ones({1, 7});
    const GrfMask here(graph, options, any), there(graph.to(kGpu), options, any.to(kGpu));
    expect_same_pattern(*there.entries().at(0).pattern, *here.entries().at(0).pattern);
    for (const std::int64_t heads : {1, 2, 3, 8, 9}) {
      SCOPED_TRACE("heads " + std::to_string(heads));
      for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
        const at::Tensor f = at::randn({heads, 7}, dtype).requires_grad_();
        const at::Tensor f_gpu = f.detach().to(kGpu).requires_grad_();
        const SparseEntries expected = here.with_f(f)->entries().at(0),
                            got = there.with_f(f_gpu)->entries().at(0);
        // The sums run in the same order.
        EXPECT_TRUE(at::equal(got.values.cpu(), expected.values));
        const at::Tensor grad = at::randn_like(expected.values);
        expected.values.backward(grad);
        got.values.backward(grad.to(kGpu));
        const double tolerance = dtype == at::kDouble ? 1e-11 : 2e-4;
        EXPECT_TRUE(at::allclose(f_gpu.grad().cpu(), f.grad(), tolerance, tolerance))
            << (f_gpu.grad().cpu() - f.grad()).abs().max().item<double>();
      }
    }
  }
}

// Where there are too many products to list, they are searched for: the same values.
TEST_P(CudaSparseProduct, FindsWhatItDoesNotList) {
  const Graph& graph = GetParam().graph;
  at::manual_seed(4);
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent}) {
    const GraphFeatures features =
        sample_features(graph.to(kGpu), {.walks = testing::geometric_walks(20, 8), .ensembles = ensembles});
    const auto pattern_of = [](const WalkFeatures& f) {
      return std::make_shared<const SparsePattern>(SparsePattern::from_rows(f.row_ptr, f.col));
    };
    const auto query = pattern_of(features.query);
    const auto key = features.key.col.is_same(features.query.col) ? query : pattern_of(features.key);
    const ProductPatterns listed = make_product_patterns_cuda(query, key),
                          searched = make_product_patterns_cuda(query, key, 0);
    const at::TensorOptions doubles = features.query.load.options().dtype(at::kDouble);
    const at::Tensor left_values = at::randn({8, query->nnz()}, doubles),
                     right_values = at::randn({8, key->nnz()}, doubles);
    for (const std::int64_t heads : {1, 3, 8}) {
      const auto run = [&](const ProductPatterns& patterns) {
        const at::Tensor left = left_values.slice(0, 0, heads).clone().requires_grad_();
        const at::Tensor right =
            query == key ? left : right_values.slice(0, 0, heads).clone().requires_grad_();
        const at::Tensor values = sparse_product(patterns, left, right);
        values.square().sum().backward();
        return std::vector<at::Tensor>{values.detach(), left.grad(), right.grad()};
      };
      const auto a = run(listed), b = run(searched);
      EXPECT_TRUE(at::equal(a[0], b[0]));
      EXPECT_TRUE(at::allclose(a[1], b[1], 1e-10, 1e-12));
      EXPECT_TRUE(at::allclose(a[2], b[2], 1e-10, 1e-12));
    }
  }
}

TEST_P(CudaSparseProduct, EstimatesItsSize) {
  const Graph& graph = GetParam().graph;
  const GrfMask mask(graph, {}, at::ones({1, 5})), on_gpu(graph.to(kGpu), {}, at::ones({1, 5}).to(kGpu));
  const auto estimated = static_cast<double>(on_gpu.profile().entries);
  const auto counted = static_cast<double>(mask.entries().at(0).pattern->nnz());
  EXPECT_NEAR(estimated, counted, 0.35 * counted + 8);
}

// Blocks that mark columns take memory for each column: few of them work on a large graph.
TEST(CudaSparseProducts, MarksColumnsInBoundedMemory) {
  EXPECT_EQ(cuda::long_row_bitmaps(1'000'000).total(), 0);  // on chip
  EXPECT_EQ(cuda::long_row_bitmaps(4'000'000).total(), 125'000 * 264);
  for (const std::int64_t nodes : {std::int64_t{100'000'000}, (std::int64_t{1} << 31) - 1}) {
    const cuda::LongRowBitmaps bitmaps = cuda::long_row_bitmaps(nodes);
    EXPECT_GE(32 * bitmaps.words, nodes);
    EXPECT_GE(bitmaps.blocks, 1);
    EXPECT_LE(bitmaps.total(), std::int64_t{1} << 27);
  }
}

// A graph whose columns are not marked on chip, with long rows at its end that reach back to its beginning.
TEST(CudaSparseProducts, IsTheCpusOnALargeGraph) {
  TOPOMASK_NEEDS_GPU();
  constexpr std::int64_t kNodes = 1'700'000, kCrowd = 400;
  ASSERT_GT(cuda::long_row_bitmaps(kNodes).total(), 0);
  const auto crowd_member = [](std::int64_t i) { return i < 3 ? i : kNodes - kCrowd + i; };
  CsrArrays rows;
  for (std::int64_t node = 0; node < kNodes; ++node) {
    if (node < 3 || node >= kNodes - kCrowd + 3) {
      for (std::int64_t i = 0; i < kCrowd; ++i) {
        if (crowd_member(i) == node) continue;
        rows.col.push_back(static_cast<std::int32_t>(crowd_member(i)));
        rows.weight.push_back(1.0f / kCrowd);
      }
    }
    rows.row_ptr.push_back(static_cast<std::int64_t>(rows.col.size()));
  }
  const Graph graph = Graph::from_csr(std::move(rows), false);
  const FeatureOptions options{.walks = testing::geometric_walks(48, 6, 0.3)};
  const at::Tensor f = at::ones({1, 7});
  const GrfMask here(graph, options, f), there(graph.to(kGpu), options, f.to(kGpu));
  const SparseEntries expected = here.entries().at(0), got = there.entries().at(0);
  expect_same_pattern(*got.pattern, *expected.pattern);
  EXPECT_TRUE(at::equal(got.values.cpu(), expected.values));
}

TEST(CudaSparseProducts, IsTheSameAtEveryRun) {
  TOPOMASK_NEEDS_GPU();
  const Graph graph = normalise(barabasi_albert(3000, 3, 5), Normalisation::symmetric).to(kGpu);
  const FeatureOptions options{.walks = testing::geometric_walks(8)};
  const GrfMask mask(graph, options, at::ones({8, 11}).to(kGpu));
  at::Tensor first_values, first_grad;
  for (int run = 0; run < 4; ++run) {
    const at::Tensor f = at::full({8, 11}, 0.5).to(kGpu).requires_grad_();
    const at::Tensor values = mask.with_f(f)->entries().at(0).values;
    values.square().sum().backward();
    if (run == 0) {
      first_values = values.detach();
      first_grad = f.grad();
    }
    EXPECT_TRUE(at::equal(values, first_values));
    EXPECT_TRUE(at::equal(f.grad(), first_grad));
  }
}

// Weighted, coupled steps on a W that is not symmetric, with walks of their own for every head and for the
// keys.
TEST(CudaSparseProducts, AreTheCpusForEveryHead) {
  TOPOMASK_NEEDS_GPU();
  const Graph graph = normalise(testing::random_directed(300, 6), Normalisation::symmetric);
  FeatureOptions options{.walks = testing::geometric_walks(10, 6), .ensembles = Ensembles::independent};
  options.walks.step = StepLaw::weighted;
  options.walks.coupling = Coupling::both;
  const at::Tensor f = at::rand({3, 7});
  const auto here = GrfMask::per_head(graph, options, f),
             there = GrfMask::per_head(graph.to(kGpu), options, f.to(kGpu));
  const std::vector<SparseEntries> expected = here->entries(), got = there->entries();
  ASSERT_EQ(got.size(), 3u);
  for (std::size_t head = 0; head < 3; ++head) {
    expect_same_pattern(*got[head].pattern, *expected[head].pattern);
    EXPECT_TRUE(at::equal(got[head].values.cpu(), expected[head].values));
  }
}

TEST(CudaSparseProducts, RefusesAModulationElsewhere) {
  TOPOMASK_NEEDS_GPU();
  EXPECT_THROW(GrfMask(karate_club().to(kGpu), {}, at::ones({1, 5})), Error);
}

}  // namespace
}  // namespace topomask
