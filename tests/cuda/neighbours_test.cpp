// Neighbours on a GPU: the CPU's, bit for bit.
#include "topomask/neighbours.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cmath>
#include <limits>
#include <string>

#include "gpu.h"
#include "graph/random_searches.h"
#include "topomask/graph_builders.h"

namespace topomask {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

void expect_same(const Neighbours& got, const Neighbours& expected) {
  ASSERT_TRUE(got.index.is_cuda() && got.distance2.is_cuda() && got.count.is_cuda());
  EXPECT_EQ(got.distance2.scalar_type(), expected.distance2.scalar_type());
  EXPECT_TRUE(at::equal(got.index.cpu(), expected.index))
      << got.index.cpu().ne(expected.index).sum().item<std::int64_t>() << " differ";
  EXPECT_TRUE(at::equal(got.distance2.cpu(), expected.distance2));
  EXPECT_TRUE(at::equal(got.count.cpu(), expected.count));
  EXPECT_EQ(got.full, expected.full);
  EXPECT_TRUE(at::equal(edge_index_of(got).cpu(), edge_index_of(expected)));
}

void expect_same(const NeighbourRows& got, const NeighbourRows& expected) {
  ASSERT_TRUE(got.row_ptr.is_cuda() && got.col.is_cuda() && got.distance2.is_cuda());
  EXPECT_TRUE(at::equal(got.row_ptr.cpu(), expected.row_ptr));
  EXPECT_TRUE(at::equal(got.col.cpu(), expected.col));
  EXPECT_TRUE(at::equal(got.distance2.cpu(), expected.distance2));
  EXPECT_TRUE(at::equal(edge_index_of(got).cpu(), edge_index_of(expected)));
}

void expect_same(const Graph& got, const Graph& expected) {
  ASSERT_TRUE(got.row_ptr.is_cuda() && got.col.is_cuda() && got.weight.is_cuda());
  EXPECT_TRUE(at::equal(got.row_ptr.cpu(), expected.row_ptr));
  EXPECT_TRUE(at::equal(got.col.cpu(), expected.col));
  EXPECT_TRUE(at::equal(got.weight.cpu(), expected.weight));
  EXPECT_EQ(got.directed, expected.directed);
}

at::Tensor there(const at::Tensor& x) {
  return x.defined() ? x.to(kGpu) : x;
}

// Offsets and box on the device, or left on the host.
NeighbourOptions moved(const NeighbourOptions& options, bool all) {
  NeighbourOptions result = options;
  result.queries = there(options.queries);
  if (!all) return result;
  result.ptr = there(options.ptr);
  result.query_ptr = there(options.query_ptr);
  result.box = there(options.box);
  return result;
}

void expect_like_the_cpu(const at::Tensor& points, std::int64_t k, double r, const NeighbourOptions& options,
                         bool all) {
  const at::Tensor on_gpu = points.to(kGpu);
  const NeighbourOptions search = moved(options, all);
  const Neighbours nearest = knn(points, k, options), found = knn(on_gpu, k, search);
  // Offsets on the device do not tell beforehand that all rows are full.
  const auto known_beforehand = [&](Neighbours expected) {
    expected.full = expected.full && !(all && options.ptr.defined());
    return expected;
  };
  expect_same(found, known_beforehand(nearest));
  expect_same(rows_of(found), rows_of(nearest));
  expect_same(radius(on_gpu, r, k, search), known_beforehand(radius(points, r, k, options)));
  expect_same(radius(on_gpu, r, search), radius(points, r, options));
}

TEST(CudaNeighbours, OfRandomSearches) {
  TOPOMASK_NEEDS_GPU();
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto [points, options, k, r] = testing::random_search(seed);
    expect_like_the_cpu(points, k, r, options, seed % 2 == 1);
    if (::testing::Test::HasFailure()) break;
  }
}

TEST(CudaNeighbours, OfManyPoints) {
  TOPOMASK_NEEDS_GPU();
  testing::Chance chance(3);
  const at::Tensor points = chance.cloud(90000, 3, 0, 0), queries = chance.cloud(50000, 3, 0, 0);
  const at::Tensor box = at::tensor({1.0, 1.0, 0.0}, at::kDouble);
  const at::Tensor ptr = at::arange(91, at::kLong) * 1000;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    SCOPED_TRACE(c10::toString(dtype));
    const at::Tensor p = points.to(dtype), q = queries.to(dtype);
    for (const std::int64_t k : {3, 16}) {
      expect_like_the_cpu(p, k, 0.02, {}, false);
      expect_like_the_cpu(p, k, 0.02, {.box = box}, true);
      expect_like_the_cpu(p, k, 0.02, {.queries = q}, false);
      expect_like_the_cpu(p, k, 0.05, {.ptr = ptr, .box = box}, true);
    }
  }
}

TEST(CudaNeighbours, OfManyNeighbours) {
  TOPOMASK_NEEDS_GPU();
  testing::Chance chance(4);
  for (const std::int64_t dimension : {2, 3, 5, 40}) {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      SCOPED_TRACE("D " + std::to_string(dimension) + " " + c10::toString(dtype));
      const at::Tensor points = chance.cloud(3000, dimension, 0, 0).to(dtype);
      for (const std::int64_t k : {9, 16, 17, 31, 32, 33, 64, 65, 200, 256, 300}) {
        expect_same(knn(points.to(kGpu), k), knn(points, k));
      }
    }
  }
}

// Ties of more points than a list has room for, points that floats cannot tell apart, and squares that floats
// cannot hold.
TEST(CudaNeighbours, OfPointsThatNeedDoubles) {
  TOPOMASK_NEEDS_GPU();
  testing::Chance chance(5);
  const at::Tensor random = chance.cloud(3000, 3, 0, 0), ties = chance.cloud(3000, 3, 1, 0);
  const at::Tensor clouds[] = {ties,
                               at::cat({ties, random}),
                               chance.cloud(1000, 3, 5, 0),
                               at::cat({random, chance.cloud(40, 3, 5, 0)}),
                               random * 1e-6 + 1,
                               random * 1e-21,
                               random * 1e20,
                               at::cat({random * 1e-3, random.slice(0, 0, 20) * 1e20}),
                               chance.cloud(70000, 3, 1, 0) + chance.cloud(70000, 3, 0, 0) * 1e-7};
  for (const at::Tensor& cloud : clouds) {
    const at::Tensor points = cloud.to(at::kFloat);
    for (const std::int64_t dimension : {1, 2, 3}) {
      const at::Tensor some = points.slice(1, 0, dimension).contiguous(), on_gpu = some.to(kGpu);
      for (const std::int64_t k : {1, 3, 16}) {
        SCOPED_TRACE("cloud " + std::to_string(&cloud - clouds) + " D " + std::to_string(dimension) + " k " +
                     std::to_string(k));
        if (some.size(0) > 10000 && dimension < 3) continue;
        expect_same(knn(on_gpu, k), knn(some, k));
        expect_same(knn_graph(on_gpu, {.k = k}), knn_graph(some, {.k = k}));
        expect_same(knn(on_gpu, k, {.include_self = true}), knn(some, k, {.include_self = true}));
      }
    }
  }
}

// UTM coordinates with millimetres.
TEST(CudaNeighbours, OfDoublePointsAreNotRounded) {
  TOPOMASK_NEEDS_GPU();
  const at::Tensor points =
      at::rand({2000, 3}, at::kDouble) * 100 + at::tensor({432000.0, 5412000.0, 300.0}, at::kDouble);
  expect_same(knn(points.to(kGpu), 3), knn(points, 3));
}

TEST(CudaNeighbours, MakeTheSameGraphs) {
  TOPOMASK_NEEDS_GPU();
  testing::Chance chance(8);
  const at::Tensor points = chance.cloud(5000, 3, 0, 0).to(at::kFloat), on_gpu = points.to(kGpu);
  const at::Tensor box = at::ones({3}, at::kDouble);
  for (const bool symmetric : {false, true}) {
    for (const at::Tensor& ptr :
         {at::Tensor(), at::arange(6, at::kLong) * 1000, chance.offsets(5000, 1500)}) {
      const KnnOptions options{.k = 4, .symmetric = symmetric, .ptr = ptr, .box = box};
      const Graph expected = knn_graph(points, options);
      expect_same(knn_graph(on_gpu, options), expected);
      expect_same(knn_graph(on_gpu, {.k = 4, .symmetric = symmetric, .ptr = there(ptr), .box = there(box)}),
                  expected);
    }
    expect_same(knn_graph(on_gpu.slice(0, 0, 20), {.k = 50, .symmetric = symmetric}),
                knn_graph(points.slice(0, 0, 20), {.k = 50, .symmetric = symmetric}));
    expect_same(knn_graph(on_gpu, {.k = 0, .symmetric = symmetric}),
                knn_graph(points, {.k = 0, .symmetric = symmetric}));
  }
  expect_same(radius_graph(on_gpu, {.r = 0.05, .box = box}), radius_graph(points, {.r = 0.05, .box = box}));
  expect_same(radius_graph(on_gpu, {.r = 0.05, .max_neighbours = 3}),
              radius_graph(points, {.r = 0.05, .max_neighbours = 3}));
}

TEST(CudaNeighbours, SurvivePointsThatAreNotFinite) {
  TOPOMASK_NEEDS_GPU();
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    at::Tensor points = at::rand({500, 3}, dtype);
    points[17][1] = std::numeric_limits<double>::quiet_NaN();
    points[400][0] = std::numeric_limits<double>::infinity();
    const at::Tensor good = at::arange(500).ne(17).logical_and(at::arange(500).ne(400));
    const Neighbours found = knn(points.to(kGpu), 6);
    const at::Tensor index = found.index.cpu();
    EXPECT_TRUE(index.index({good}).ge(0).all().item<bool>());
    EXPECT_TRUE(index.ne(17).logical_and(index.ne(400)).all().item<bool>());
    EXPECT_TRUE(index[17].eq(-1).all().item<bool>());
    EXPECT_EQ(found.count.cpu()[400].item<std::int32_t>(), 0);
    // Rows, edges and graphs hold valid points all the same.
    for (const at::Tensor& valid :
         {edge_index_of(found), rows_of(found).col.to(at::kLong),
          knn_graph(points.to(kGpu), {.k = 6}).col.to(at::kLong),
          knn_graph(points.to(kGpu), {.k = 6, .symmetric = true}).col.to(at::kLong)}) {
      EXPECT_TRUE(valid.ge(0).logical_and(valid.lt(500)).all().item<bool>());
    }
    EXPECT_EQ(radius(points.to(kGpu), 10.0).col.size(0), 498 * 497);
  }
}

// Unchecked offsets may give any result, but one.
TEST(CudaNeighbours, SurviveWrongOffsets) {
  TOPOMASK_NEEDS_GPU();
  const at::Tensor points = at::rand({500, 3}).to(kGpu);
  const Neighbours found = knn(points, 6, {.ptr = at::tensor({0, 400, 90, 1000000}).to(kGpu)});
  EXPECT_TRUE(found.index.ge(-1).logical_and(found.index.lt(500)).all().item<bool>());
}

TEST(CudaNeighbours, WaitForNothing) {
  TOPOMASK_NEEDS_GPU();
  const at::Tensor points = at::rand({5000, 3}).to(kGpu), queries = at::rand({700, 3}).to(kGpu);
  const at::Tensor ptr = (at::arange(6, at::kLong) * 1000).to(kGpu), host_box = at::ones({3}, at::kDouble);
  auto& state = c10::cuda::warning_state();
  state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  EXPECT_NO_THROW(knn_graph(points, {.k = 3}));
  EXPECT_NO_THROW(knn_graph(points.to(at::kDouble), {.k = 3, .box = host_box}));
  EXPECT_NO_THROW(edge_index_of(knn(points, 16)));
  EXPECT_NO_THROW(knn(points, 16, {.queries = queries}));
  EXPECT_NO_THROW(knn(points, 16, {.ptr = ptr, .box = host_box}));
  EXPECT_NO_THROW(radius(points, 0.1, 16));
  state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
}

}  // namespace
}  // namespace topomask
