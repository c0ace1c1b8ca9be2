// M_hat on a GPU against the CPU's: pattern, values and the gradient of f.
#include <ATen/ATen.h>

#include "gpu.h"
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

TEST(CudaSparseProduct, IsTheCpusForEveryGraph) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(3);
  for (const auto& [name, graph] : testing::sample_graphs()) {
    if (graph.num_nodes() == 0) continue;
    for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
      const FeatureOptions options{.walks = testing::geometric_walks(12, 6), .ensembles = ensembles};
      for (const std::int64_t heads : {1, 2, 3, 8, 9}) {
        SCOPED_TRACE(name + ", heads " + std::to_string(heads));
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
          const at::Tensor f = at::randn({heads, 7}, dtype).requires_grad_();
          const at::Tensor f_gpu = f.detach().to(kGpu).requires_grad_();
          const GrfMask mask(graph, options, f), on_gpu(graph.to(kGpu), options, f_gpu);
          const SparseEntries expected = mask.entries().at(0), got = on_gpu.entries().at(0);
          expect_same_pattern(*got.pattern, *expected.pattern);
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
}

TEST(CudaSparseProduct, EstimatesItsSize) {
  TOPOMASK_NEEDS_GPU();
  for (const auto& [name, graph] : testing::sample_graphs()) {
    if (graph.num_nodes() == 0) continue;
    SCOPED_TRACE(name);
    const GrfMask mask(graph, {}, at::ones({1, 5})), on_gpu(graph.to(kGpu), {}, at::ones({1, 5}).to(kGpu));
    const auto estimated = static_cast<double>(on_gpu.num_entries_total());
    const auto counted = static_cast<double>(mask.entries().at(0).pattern->nnz());
    EXPECT_NEAR(estimated, counted, 0.35 * counted + 8);
  }
}

TEST(CudaSparseProduct, IsTheSameAtEveryRun) {
  TOPOMASK_NEEDS_GPU();
  const Graph graph = normalise(barabasi_albert(3000, 3, 5), Normalisation::symmetric).to(kGpu);
  const FeatureOptions options{.walks = testing::geometric_walks(8)};
  const GrfMask mask(graph, options, at::ones({8, 11}).to(kGpu));
  at::Tensor first_values, first_grad;
  for (int run = 0; run < 4; ++run) {
    const at::Tensor f = at::full({8, 11}, 0.5).to(kGpu).requires_grad_();
    const at::Tensor values = mask.with_modulation(f).entries().at(0).values;
    values.square().sum().backward();
    if (run == 0) {
      first_values = values.detach();
      first_grad = f.grad();
    }
    EXPECT_TRUE(at::equal(values, first_values));
    EXPECT_TRUE(at::equal(f.grad(), first_grad));
  }
}

TEST(CudaSparseProduct, RefusesAModulationElsewhere) {
  TOPOMASK_NEEDS_GPU();
  EXPECT_THROW(GrfMask(karate_club().to(kGpu), {}, at::ones({1, 5})), Error);
}

}  // namespace
}  // namespace topomask
