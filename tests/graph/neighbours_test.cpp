// Neighbours against their definition: all distances in float64, sorted by (distance, index).
#include "topomask/neighbours.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "graph/random_searches.h"
#include "support/expect_error.h"
#include "topomask/graph_builders.h"

namespace topomask {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Found {
  double distance2;
  std::int64_t index;

  bool operator<(const Found& other) const {
    return distance2 != other.distance2 ? distance2 < other.distance2 : index < other.index;
  }
};

// All points of a query's graph within r, nearest first.
std::vector<std::vector<Found>> by_definition(const at::Tensor& points, double r,
                                              const NeighbourOptions& options) {
  const at::Tensor p = points.to(at::kDouble).contiguous();
  const bool same = !options.queries.defined();
  const at::Tensor q = same ? p : options.queries.to(at::kDouble).contiguous();
  const std::int64_t dimension = p.size(1), num_graphs = options.ptr.defined() ? options.ptr.size(0) - 1 : 1;
  const double *point = p.data_ptr<double>(), *query = q.data_ptr<double>();
  std::vector<double> box(static_cast<std::size_t>(dimension), 0);
  for (std::int64_t a = 0; a < dimension && options.box.defined(); ++a)
    box[a] = options.box[a].item<double>();
  std::vector<std::vector<Found>> rows(static_cast<std::size_t>(q.size(0)));
  for (std::int64_t g = 0; g < num_graphs; ++g) {
    std::int64_t begin = 0, end = p.size(0), first = 0, last = q.size(0);
    if (options.ptr.defined()) {
      const at::Tensor query_ptr = same ? options.ptr : options.query_ptr;
      begin = options.ptr[g].item<std::int64_t>();
      end = options.ptr[g + 1].item<std::int64_t>();
      first = query_ptr[g].item<std::int64_t>();
      last = query_ptr[g + 1].item<std::int64_t>();
    }
    for (std::int64_t i = first; i < last; ++i) {
      for (std::int64_t j = begin; j < end; ++j) {
        if (same && i == j && !options.include_self.value_or(false)) continue;
        double sum = 0;
        for (std::int64_t a = 0; a < dimension; ++a) {
          double d = query[i * dimension + a] - point[j * dimension + a];
          if (box[a] > 0) d = std::remainder(d, box[a]);
          sum += d * d;
        }
        if (sum <= r * r) rows[i].push_back({sum, j});
      }
      std::sort(rows[i].begin(), rows[i].end());
    }
  }
  return rows;
}

void expect_lists(const Neighbours& got, std::int64_t k, const std::vector<std::vector<Found>>& expected) {
  const auto queries = static_cast<std::int64_t>(expected.size());
  ASSERT_EQ(got.index.sizes(), (std::vector<std::int64_t>{queries, k}));
  ASSERT_EQ(got.distance2.sizes(), got.index.sizes());
  ASSERT_EQ(got.count.sizes(), (std::vector<std::int64_t>{queries}));
  at::Tensor index = at::full({queries, k}, -1, at::kInt),
             distance2 = at::full({queries, k}, kInfinity, at::kDouble),
             count = at::zeros({queries}, at::kInt);
  bool full = true;
  for (std::int64_t i = 0; i < queries; ++i) {
    const auto have = std::min<std::int64_t>(k, static_cast<std::int64_t>(expected[i].size()));
    for (std::int64_t j = 0; j < have; ++j) {
      index.data_ptr<std::int32_t>()[i * k + j] = static_cast<std::int32_t>(expected[i][j].index);
      distance2.data_ptr<double>()[i * k + j] = expected[i][j].distance2;
    }
    count.data_ptr<std::int32_t>()[i] = static_cast<std::int32_t>(have);
    full = full && have == k;
  }
  EXPECT_TRUE(at::equal(got.index, index)) << (got.index != index).sum().item<std::int64_t>() << " differ";
  EXPECT_TRUE(at::equal(got.distance2, distance2.to(got.distance2.scalar_type())));
  EXPECT_TRUE(at::equal(got.count, count));
  EXPECT_TRUE(!got.full || full);
}

void expect_rows(const NeighbourRows& got, std::vector<std::vector<Found>> expected) {
  std::vector<std::int64_t> row_ptr = {0}, col;
  std::vector<double> distance2;
  for (auto& row : expected) {
    std::sort(row.begin(), row.end(), [](const Found& a, const Found& b) { return a.index < b.index; });
    for (const Found& each : row) {
      col.push_back(each.index);
      distance2.push_back(each.distance2);
    }
    row_ptr.push_back(static_cast<std::int64_t>(col.size()));
  }
  EXPECT_TRUE(at::equal(got.row_ptr, at::tensor(row_ptr)));
  EXPECT_TRUE(at::equal(got.col, at::tensor(col, at::kInt)));
  EXPECT_TRUE(at::equal(got.distance2, at::tensor(distance2, at::kDouble).to(got.distance2.scalar_type())));
}

TEST(Neighbours, AreThoseOfTheDefinition) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto [points, options, k, r] = testing::random_search(seed);
    expect_lists(knn(points, k, options), k, by_definition(points, kInfinity, options));
    const auto within = by_definition(points, r, options);
    expect_lists(radius(points, r, k, options), k, within);
    expect_rows(radius(points, r, options), within);
    if (::testing::Test::HasFailure()) break;
  }
}

// Large enough for cells, trees and several threads.
TEST(Neighbours, OfManyPointsAreThoseOfTheDefinition) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    testing::Chance chance(1000 + seed);
    const std::int64_t dimension = seed % 6 == 5 ? 5 : 1 + static_cast<std::int64_t>(seed % 3);
    const at::ScalarType dtype = seed % 2 == 0 ? at::kFloat : at::kDouble;
    const int kind = static_cast<int>(seed / 2 % 5);
    const at::Tensor points = chance.cloud(1000, dimension, kind, seed % 4 < 2 ? 0 : 4.5e6).to(dtype);
    NeighbourOptions options;
    if (seed % 3 == 1) {
      options.queries =
          chance.cloud(700, dimension, static_cast<int>(seed % 5), seed % 4 < 2 ? 0 : 4.5e6).to(dtype);
    }
    if (seed / 3 % 2 == 1) {
      options.box = at::empty({dimension}, at::kDouble);
      for (std::int64_t a = 0; a < dimension; ++a) {
        options.box.data_ptr<double>()[a] = chance.flip(0.2) ? 0 : std::pow(10.0, chance.real(-1, 0.5));
      }
    }
    const std::int64_t k = seed % 2 == 0 ? 3 : 24;
    const auto all = by_definition(points, kInfinity, options);
    expect_lists(knn(points, k, options), k, all);
    const double r = 0.05;
    const auto within = by_definition(points, r, options);
    expect_lists(radius(points, r, k, options), k, within);
    expect_rows(radius(points, r, options), within);
    if (::testing::Test::HasFailure()) break;
  }
}

// UTM coordinates in metres with millimetres: float32 would keep half metres of the northing.
TEST(Neighbours, OfDoublePointsAreNotRounded) {
  at::manual_seed(3);
  const at::Tensor local = at::rand({2000, 3}, at::kDouble) * at::tensor({100.0, 100.0, 10.0}, at::kDouble);
  const at::Tensor there = local + at::tensor({432000.0, 5412000.0, 300.0}, at::kDouble);
  for (const at::Tensor& points : {there, local + 1e7}) {
    const auto expected = by_definition(points, kInfinity, {});
    expect_lists(knn(points, 3), 3, expected);
    const Graph graph = knn_graph(points, {.k = 3});
    for (std::int64_t i = 0; i < 2000; ++i) {
      std::vector<std::int64_t> row;
      for (int j = 0; j < 3; ++j) row.push_back(expected[i][j].index);
      std::sort(row.begin(), row.end());
      for (int j = 0; j < 3; ++j) ASSERT_EQ(graph.col[3 * i + j].item<std::int32_t>(), row[j]) << i;
    }
  }
  // Scales that float32 does not have.
  for (const double scale : {1e-300, 1e-60, 1e60, 1e140}) {
    const at::Tensor points = local.slice(0, 0, 500) * scale;
    expect_lists(knn(points, 5), 5, by_definition(points, kInfinity, {}));
  }
}

TEST(Neighbours, AreTheSameForAnyNumberOfThreads) {
  testing::Chance chance(5);
  const at::Tensor points = chance.cloud(20000, 3, 0, 0), box = at::tensor({1.0, 1.0, 0.5}, at::kDouble);
  const NeighbourOptions options{.ptr = chance.offsets(20000, 60), .box = box};
  const int before = num_threads();
  set_num_threads(1);
  const Neighbours one = knn(points, 6, options);
  const NeighbourRows rows = radius(points, 0.05, options);
  for (const int threads : {2, 5}) {
    set_num_threads(threads);
    const Neighbours many = knn(points, 6, options);
    EXPECT_TRUE(at::equal(many.index, one.index) && at::equal(many.distance2, one.distance2));
    const NeighbourRows more = radius(points, 0.05, options);
    EXPECT_TRUE(at::equal(more.row_ptr, rows.row_ptr) && at::equal(more.col, rows.col));
  }
  set_num_threads(before);
}

// Quadratic time would take minutes.
TEST(Neighbours, TakeNoLongerWherePointsCrowd) {
  testing::Chance chance(6);
  at::Tensor points = chance.cloud(60000, 3, 0, 0);
  points[0].fill_(1e12);  // leaves all others in one cell
  EXPECT_EQ(knn(points, 3).count.min().item<std::int32_t>(), 3);
  EXPECT_GT(radius(points, 0.005, {}).col.size(0), 1000);
  EXPECT_EQ(radius(at::ones({60000, 3}), 1, 2).count.min().item<std::int32_t>(), 2);
  // A box that is much larger than what is in it.
  EXPECT_EQ(
      knn(points.slice(0, 1), 3, {.box = at::full({3}, 1e9, at::kDouble)}).count.min().item<std::int32_t>(),
      3);
}

TEST(Neighbours, OfNothing) {
  const Neighbours none = knn(at::rand({0, 3}), 4);
  EXPECT_EQ(none.index.sizes(), (std::vector<std::int64_t>{0, 4}));
  EXPECT_EQ(radius(at::rand({0, 3}), 1).row_ptr.size(0), 1);
  const Neighbours lonely = knn(at::rand({1, 3}), 2);
  EXPECT_TRUE(at::equal(lonely.index, at::full({1, 2}, -1, at::kInt)));
  EXPECT_FALSE(lonely.full);
  EXPECT_EQ(knn(at::rand({5, 3}), 0).index.sizes(), (std::vector<std::int64_t>{5, 0}));
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {  // enough for each way to search
    for (const std::int64_t count : {100, 5000, 60000}) {
      const Neighbours empty = knn(at::rand({count, 3}, dtype), 0);
      EXPECT_EQ(empty.index.sizes(), (std::vector<std::int64_t>{count, 0}));
      EXPECT_EQ(empty.count.abs().max().item<std::int32_t>(), 0);
    }
  }
  const Neighbours among_none = knn(at::rand({0, 2}), 2, {.queries = at::rand({3, 2})});
  EXPECT_TRUE(at::equal(among_none.index, at::full({3, 2}, -1, at::kInt)));
  // No dimensions: all points are equal.
  EXPECT_TRUE(at::equal(knn(at::empty({3, 0}), 1).index, at::tensor({1, 0, 0}, at::kInt).view({3, 1})));
}

TEST(Neighbours, BecomeEdges) {
  const at::Tensor points = at::tensor({0.0, 1.0, 3.0, 3.5}).view({4, 1});
  const Neighbours two = knn(points, 2);
  EXPECT_TRUE(two.full);
  EXPECT_TRUE(at::equal(edge_index_of(two),
                        at::tensor({1, 2, 0, 2, 3, 1, 2, 1, 0, 0, 1, 1, 2, 2, 3, 3}).view({2, 8})));
  const Neighbours near = radius(points, 1.0, 3);
  EXPECT_FALSE(near.full);
  const at::Tensor expected = at::tensor({1, 0, 3, 2, 0, 1, 2, 3}).view({2, 4});
  EXPECT_TRUE(at::equal(edge_index_of(near), expected));
  EXPECT_TRUE(at::equal(edge_index_of(radius(points, 1.0)), expected));
  const NeighbourRows rows = rows_of(two);
  EXPECT_TRUE(at::equal(rows.row_ptr, at::tensor({0, 2, 4, 6, 8})));
  EXPECT_TRUE(at::equal(rows.col, at::tensor({1, 2, 0, 2, 1, 3, 1, 2}, at::kInt)));
  EXPECT_TRUE(at::equal(rows.distance2, at::tensor({1.0, 9.0, 1.0, 4.0, 4.0, 0.25, 6.25, 0.25})));
}

TEST(Neighbours, OfABatchVector) {
  EXPECT_TRUE(at::equal(ptr_of_batch(at::tensor({0, 0, 2, 2, 2}), 4), at::tensor({0, 2, 2, 5, 5})));
  EXPECT_TRUE(at::equal(ptr_of_batch(at::empty({0}, at::kLong), 0), at::tensor({0})));
  testing::expect_error(
      [] {
        ptr_of_batch(at::tensor({0, 2, 1}), 3);
      },
      "batch must be ascending, got 1 after 2 at position 2");
  testing::expect_error(
      [] {
        ptr_of_batch(at::tensor({0, 3}), 3);
      },
      "batch must hold graphs from 0 to 2, got 3 at position 1");
}

TEST(NeighbourGraphs, OfBatchesAndBoxes) {
  // Two graphs of two nodes and of one.
  const at::Tensor points = at::tensor({0.0, 0.9, 0.1}).view({3, 1}), ptr = at::tensor({0, 2, 3});
  const Graph batch = knn_graph(points, {.k = 5, .ptr = ptr});
  EXPECT_TRUE(batch.directed);
  EXPECT_TRUE(at::equal(batch.row_ptr, at::tensor({0, 1, 2, 2})));
  EXPECT_TRUE(at::equal(batch.col, at::tensor({1, 0}, at::kInt)));
  const Graph line = knn_graph(points, {.k = 1}),
              ring = knn_graph(points, {.k = 1, .box = at::tensor({1.0}, at::kDouble)});
  EXPECT_TRUE(at::equal(line.col, at::tensor({2, 2, 0}, at::kInt)));
  EXPECT_TRUE(at::equal(ring.col, at::tensor({1, 0, 0}, at::kInt)));
  EXPECT_EQ(knn_graph(points, {.k = 0}).num_entries(), 0);
  EXPECT_EQ(knn_graph(points, {.k = 7}).num_entries(), 6);

  const Graph near = radius_graph(points, {.r = 0.2, .box = at::tensor({1.0}, at::kDouble)});
  EXPECT_FALSE(near.directed);
  EXPECT_TRUE(near.is_symmetric());
  EXPECT_TRUE(at::equal(near.col, at::tensor({1, 2, 0, 2, 0, 1}, at::kInt)));
  const Graph nearest = radius_graph(points, {.r = 0.2, .max_neighbours = 1});
  EXPECT_TRUE(nearest.directed);
  EXPECT_TRUE(at::equal(nearest.row_ptr, at::tensor({0, 1, 1, 2})));
}

TEST(Neighbours, RejectBadInput) {
  using testing::expect_error;
  const at::Tensor points = at::rand({5, 3});
  expect_error([&] { knn(points, -1); }, "knn: expected at least 0 neighbours, got -1");
  expect_error([&] { knn(points, std::int64_t{1} << 40); }, "knn: a graph has at most 2^32 entries");
  expect_error([&] { radius(points, -1.0); }, "radius: expected a radius of at least 0, got -1");
  expect_error([&] { radius(points, std::nan("")); }, "radius: expected a radius of at least 0, got nan");
  expect_error([&] { knn(points[0], 1); },
               "knn: expected floating-point points [N, D], got Float [3] on cpu");
  expect_error([&] { knn(points.to(at::kInt), 1); }, "knn: expected floating-point points [N, D]");
  expect_error(
      [&] {
        knn(points, 1, {.queries = at::rand({2, 2})});
      },
      "knn: expected floating-point queries [Q, 3] on cpu, got Float [2, 2] on cpu");
  expect_error(
      [&] {
        knn(points, 1, {.ptr = at::tensor({0, 6, 5})});
      },
      "knn: expected ptr not to descend, got 5 after 6 at position 2");
  expect_error(
      [&] {
        knn(points, 1, {.ptr = at::tensor({0, 4})});
      },
      "knn: expected ptr to end with the number of rows 5, got 4");
  expect_error(
      [&] {
        knn(points, 1, {.ptr = at::tensor({1, 5})});
      },
      "knn: expected ptr to begin with 0, got 1");
  expect_error([&] { knn(points, 1, {.ptr = at::rand({3})}); }, "knn: expected ptr [graphs+1] of int64");
  expect_error([&] { knn(points, 1, {.ptr = at::empty({0}, at::kLong)}); }, "knn: expected ptr [graphs+1]");
  expect_error(
      [&] {
        knn(points, 1, {.queries = points, .ptr = at::tensor({0, 5})});
      },
      "knn: expected query_ptr where there are both ptr and queries, and nowhere else");
  expect_error(
      [&] {
        knn(points, 1, {.query_ptr = at::tensor({0, 5})});
      },
      "knn: expected ptr together with query_ptr, got query_ptr alone");
  expect_error(
      [&] {
        knn(points, 1, {.queries = points, .ptr = at::tensor({0, 5}), .query_ptr = at::tensor({0, 2, 5})});
      },
      "knn: expected query_ptr to have as many graphs as ptr, 1, got 2");
  expect_error([&] { knn(points, 1, {.box = at::ones({2})}); }, "knn: expected box [3] of real numbers");
  expect_error(
      [&] {
        knn(points, 1, {.box = at::tensor({1.0, -1.0, 0.0})});
      },
      "knn: expected lengths of at least 0 in box (0: not periodic), got -1 at position 1");
  expect_error([&] { knn_graph(points, {.k = -2}); }, "knn_graph: expected at least 0 neighbours, got -2");
  expect_error([&] { radius_graph(points, {.r = 1, .max_neighbours = -2}); },
               "radius_graph: expected max_neighbours of at least 0 (0: all), got -2");
  for (const double bad : {std::nan(""), kInfinity}) {
    at::Tensor broken = points.clone();
    broken[2][1] = bad;
    expect_error([&] { knn_graph(broken, {.k = 2}); }, "knn_graph: coordinate 1 of point 2 is ");
    expect_error([&] { radius(broken, 1.0); }, "radius: coordinate 1 of point 2 is ");
    expect_error([&] { knn(points, 1, {.queries = broken}); }, "knn: coordinate 1 of query 2 is ");
  }
}

}  // namespace
}  // namespace topomask
