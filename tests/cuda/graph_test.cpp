// Graphs and nearest neighbours on a GPU against the CPU's.
#include <ATen/ATen.h>

#include <cmath>

#include "gpu.h"
#include "sample_graphs.h"

namespace topomask {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

void expect_same(const Graph& on_gpu, const Graph& expected) {
  ASSERT_TRUE(on_gpu.row_ptr.is_cuda() && on_gpu.col.is_cuda() && on_gpu.weight.is_cuda());
  EXPECT_TRUE(at::equal(on_gpu.row_ptr.cpu(), expected.row_ptr));
  EXPECT_TRUE(at::equal(on_gpu.col.cpu(), expected.col));
  EXPECT_TRUE(at::allclose(on_gpu.weight.cpu(), expected.weight, 1e-6, 0));
  EXPECT_EQ(on_gpu.directed, expected.directed);
}

TEST(CudaGraph, TransformsLikeTheCpu) {
  TOPOMASK_NEEDS_GPU();
  at::manual_seed(2);
  for (const auto& [name, graph] : testing::sample_graphs()) {
    SCOPED_TRACE(name);
    const Graph on_gpu = graph.to(kGpu);
    expect_same(on_gpu.transposed(), graph.transposed());
    for (const Normalisation how : {Normalisation::none, Normalisation::symmetric, Normalisation::random_walk,
                                    Normalisation::max_degree}) {
      expect_same(normalise(on_gpu, how), normalise(graph, how));
    }
    EXPECT_EQ(on_gpu.is_symmetric(), graph.is_symmetric());
    const at::Tensor order = at::randperm(graph.num_nodes(), at::kLong);
    expect_same(on_gpu.permuted(order.to(kGpu)), graph.permuted(order));
    EXPECT_TRUE(at::equal(inverse_order(order.to(kGpu)).cpu(), inverse_order(order)));
    EXPECT_TRUE(at::equal(on_gpu.to_dense().cpu(), graph.to_dense()));
    EXPECT_EQ(summarise(on_gpu).edges, summarise(graph).edges);
  }
  const Graph made = Graph::from_csr_tensors(at::tensor({0, 1, 2}).to(kGpu), at::tensor({1, 0}).to(kGpu), {});
  EXPECT_TRUE(made.col.is_cuda());
  EXPECT_FALSE(made.directed);
}

struct Cloud {
  std::string name;
  at::Tensor points;
};
void PrintTo(const Cloud& cloud, std::ostream* to) {
  *to << cloud.name;
}

std::vector<Cloud> clouds() {
  at::manual_seed(7);
  const std::vector<float> sphere = testing::bumpy_sphere(5000, 1);
  const at::Tensor uniform = at::rand({3000, 3});
  std::vector<Cloud> result = {{"sphere", at::tensor(sphere).view({-1, 3})},
                               {"uniform", uniform},
                               {"plane", at::rand({1025, 2})},
                               {"line", at::rand({900, 1})},
                               {"few", at::rand({70, 3})},
                               {"leaf", at::rand({32, 3})},
                               {"equal", at::ones({200, 3})},
                               {"double", at::rand({1000, 3}, at::kDouble)}};
  // Ties everywhere.
  const at::Tensor axis = at::arange(9, at::kFloat);
  result.push_back({"lattice", at::cartesian_prod({axis, axis, axis})});
  // Clusters of very different sizes, and an outlier that leaves all others in one cell.
  const at::Tensor cluster = at::randn({1000, 3}) * 1e-4;
  result.push_back({"clusters", at::cat({cluster, uniform, cluster + 5})});
  result.push_back({"outlier", at::cat({uniform, at::full({1, 3}, 1e7)})});
  result.push_back({"tiny", uniform * 1e-30});
  result.push_back({"huge", (uniform - 0.5) * 3e38});
  return result;
}

class CudaClouds : public testing::OnGpu<Cloud> {};
INSTANTIATE_TEST_SUITE_P(Clouds, CudaClouds, ::testing::ValuesIn(clouds()),
                         [](const auto& each) { return each.param.name; });

TEST_P(CudaClouds, HaveTheSameNeighboursAndTies) {
  const at::Tensor& points = GetParam().points;
  for (const std::int64_t k : {1, 3, 4, 7, 16, 20, 31, 64}) {
    if (k >= points.size(0)) continue;
    SCOPED_TRACE("k " + std::to_string(k));
    const at::Tensor got = knn_indices(points.to(kGpu), k);
    ASSERT_TRUE(got.is_cuda());
    const at::Tensor expected = knn_indices(points, k);
    EXPECT_TRUE(at::equal(got.cpu(), expected))
        << got.cpu().ne(expected).sum().item<std::int64_t>() << " differ";
  }
}

TEST_P(CudaClouds, MakeTheSameGraph) {
  for (const bool symmetric : {false, true}) {
    const KnnOptions options{.k = 5, .symmetric = symmetric};
    expect_same(knn_graph(GetParam().points.to(kGpu), options), knn_graph(GetParam().points, options));
  }
}

TEST_P(CudaClouds, HaveTheSameOrder) {
  const at::Tensor& points = GetParam().points;
  EXPECT_TRUE(at::equal(morton_order(points.to(kGpu)).cpu(), morton_order(points)));
}

TEST(CudaKnn, SortsManyPointsByFineKeys) {
  TOPOMASK_NEEDS_GPU();
  const at::Tensor points = at::tensor(testing::bumpy_sphere(200000, 5)).view({-1, 3});
  EXPECT_TRUE(at::equal(knn_indices(points.to(kGpu), 5).cpu(), knn_indices(points, 5)));
}

TEST(CudaKnn, GoesTheLongWayWhereThereIsNoKernel) {
  TOPOMASK_NEEDS_GPU();
  const at::Tensor many = at::rand({400, 200});
  expect_same(knn_graph(many.to(kGpu), {.k = 4}), knn_graph(many, {.k = 4}));
  expect_same(knn_graph(many.slice(1, 0, 3).to(kGpu), {.k = 300}),
              knn_graph(many.slice(1, 0, 3), {.k = 300}));
}

TEST(CudaKnn, SurvivesPointsThatAreNotFinite) {
  TOPOMASK_NEEDS_GPU();
  at::Tensor points = at::rand({500, 3});
  points[17][1] = std::numeric_limits<float>::quiet_NaN();
  points[400][0] = std::numeric_limits<float>::infinity();
  const at::Tensor got = knn_indices(points.to(kGpu), 6).cpu();
  EXPECT_TRUE(got.ge(-1).logical_and(got.lt(500)).all().item<bool>());  // -1: such a point has no neighbours
  const at::Tensor others = at::arange(500).ne(17).logical_and(at::arange(500).ne(400));
  EXPECT_TRUE(got.index({others}).ne(17).logical_and(got.index({others}).ne(400)).all().item<bool>());
}

TEST(CudaMorton, OrdersNothing) {
  TOPOMASK_NEEDS_GPU();
  EXPECT_EQ(morton_order(at::rand({0, 3}).to(kGpu)).size(0), 0);
}

}  // namespace
}  // namespace topomask
