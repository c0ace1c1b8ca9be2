// Every way to find neighbours against the O(N^2) definition, on the point sets that break cells and trees.
#include "graph/cpu/knn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "topomask/error.h"

namespace topomask {
namespace {

struct Cloud {
  std::vector<float> coordinate;
  std::int64_t dimension = 3;

  std::int64_t count() const { return static_cast<std::int64_t>(coordinate.size()) / dimension; }
  PointSet<float> view() const { return {coordinate.data(), count(), dimension}; }
};

std::vector<std::int32_t> brute_force(const Cloud& cloud, std::int64_t k) {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < cloud.count(); ++i) {
    std::vector<std::pair<double, std::int32_t>> all;
    for (std::int64_t j = 0; j < cloud.count(); ++j) {
      if (i == j) continue;
      double sum = 0;
      for (std::int64_t a = 0; a < cloud.dimension; ++a) {
        const double d = static_cast<double>(cloud.view().point(i)[a]) - cloud.view().point(j)[a];
        sum += d * d;
      }
      all.emplace_back(sum, static_cast<std::int32_t>(j));
    }
    std::partial_sort(all.begin(), all.begin() + k, all.end());
    for (std::int64_t j = 0; j < k; ++j) out.push_back(all[j].second);
  }
  return out;
}

std::vector<std::int32_t> nearest(const Cloud& cloud, std::int64_t k,
                                  KnnMethod method = KnnMethod::automatic) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(cloud.count() * k), -2);
  NeighbourSearch<float> search;
  search.points = search.queries = cloud.view();
  search.skip_own = true;
  NeighbourLists<float> lists;
  lists.k = k;
  lists.index = out.data();
  nearest_neighbours(search, lists, method);
  return out;
}

Cloud uniform(std::int64_t count, std::int64_t dimension, std::uint64_t seed) {
  RandomStream random(seed, 1);
  Cloud cloud{{}, dimension};
  for (std::int64_t i = 0; i < count * dimension; ++i) {
    cloud.coordinate.push_back(static_cast<float>(random.next_double()));
  }
  return cloud;
}

Cloud sphere(std::int64_t count, std::uint64_t seed) {
  Cloud cloud = uniform(count, 3, seed);
  for (std::int64_t i = 0; i < count; ++i) {
    float* p = cloud.coordinate.data() + 3 * i;
    for (int a = 0; a < 3; ++a) p[a] -= 0.5f;
    const float norm = std::sqrt(p[0] * p[0] + p[1] * p[1] + p[2] * p[2]) + 1e-6f;
    for (int a = 0; a < 3; ++a) p[a] /= norm;
  }
  return cloud;
}

TEST(Knn, AllMethodsAgreeWithTheDefinition) {
  for (const std::int64_t dimension : {1, 2, 3, 4, 7, 11}) {
    const Cloud cloud = uniform(400, dimension, static_cast<std::uint64_t>(dimension));
    for (const std::int64_t k : {1, 3, 16, 399}) {
      const auto expected = brute_force(cloud, k);
      EXPECT_EQ(nearest(cloud, k), expected) << "D " << dimension << " k " << k;
      EXPECT_EQ(nearest(cloud, k, KnnMethod::tree), expected) << "D " << dimension << " k " << k;
      EXPECT_EQ(nearest(cloud, k, KnnMethod::scan), expected) << "D " << dimension << " k " << k;
    }
  }
}

TEST(Knn, Surface) {
  const Cloud cloud = sphere(3000, 5);
  for (const std::int64_t k : {1, 3, 16, 40}) EXPECT_EQ(nearest(cloud, k), brute_force(cloud, k)) << k;
}

TEST(Knn, TiesGoToTheSmallerIndex) {
  Cloud lattice;  // every point has up to six neighbours at the same distance
  for (int i = 0; i < 512; ++i) {
    // Scrambled, so that index order is not memory order.
    const int cell = i * 173 % 512;
    for (const int coordinate : {cell % 8, cell / 8 % 8, cell / 64}) {
      lattice.coordinate.push_back(static_cast<float>(coordinate));
    }
  }
  for (const std::int64_t k : {1, 4, 9}) {
    for (const auto method : {KnnMethod::cells, KnnMethod::tree, KnnMethod::scan}) {
      EXPECT_EQ(nearest(lattice, k, method), brute_force(lattice, k)) << k;
    }
  }
}

TEST(Knn, EqualPoints) {
  const Cloud small{std::vector<float>(3 * 50, 2.5f)};
  for (const auto method : {KnnMethod::cells, KnnMethod::tree, KnnMethod::scan}) {
    EXPECT_EQ(nearest(small, 4, method), brute_force(small, 4));
  }
  // Quadratic time would take minutes here.
  const Cloud large{std::vector<float>(3 * 300000, 2.5f)};
  const auto found = nearest(large, 3);
  EXPECT_EQ(std::vector<std::int32_t>(found.begin(), found.begin() + 6),
            (std::vector<std::int32_t>{1, 2, 3, 0, 2, 3}));
  EXPECT_EQ(std::vector<std::int32_t>(found.end() - 3, found.end()), (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(Knn, ClustersWithOutliers) {
  Cloud cloud = uniform(2000, 3, 9);
  for (std::size_t i = 0; i < cloud.coordinate.size(); ++i) {
    if (i / 3 < 900) cloud.coordinate[i] *= 1e-6f;
    if (i / 3 >= 1990) cloud.coordinate[i] = (cloud.coordinate[i] - 0.5f) * 1e9f;
  }
  for (const std::int64_t k : {1, 3, 16}) EXPECT_EQ(nearest(cloud, k), brute_force(cloud, k)) << k;

  // One far point squeezes everything else into one cell; quadratic time would take minutes.
  Cloud squeezed = uniform(200000, 3, 10);
  for (int a = 0; a < 3; ++a) squeezed.coordinate[a] = 1e12f;
  EXPECT_EQ(nearest(squeezed, 3), nearest(squeezed, 3, KnnMethod::tree));
}

TEST(Knn, ExtremeScales) {
  for (const float scale : {1e-30f, 1e-22f, 1e18f, 1e37f}) {
    Cloud cloud = uniform(300, 3, 11);
    for (float& x : cloud.coordinate) x *= scale;
    const auto expected = brute_force(cloud, 5);
    for (const auto method : {KnnMethod::cells, KnnMethod::tree, KnnMethod::scan}) {
      EXPECT_EQ(nearest(cloud, 5, method), expected) << scale;
    }
  }
}

TEST(Knn, FlatAndThinClouds) {
  Cloud plane = uniform(1500, 3, 12), line = plane;
  for (std::size_t i = 2; i < plane.coordinate.size(); i += 3) plane.coordinate[i] = 7;
  for (std::size_t i = 0; i < line.coordinate.size(); ++i) line.coordinate[i] *= i % 3 == 0 ? 1.0f : 1e-7f;
  EXPECT_EQ(nearest(plane, 6), brute_force(plane, 6));
  EXPECT_EQ(nearest(line, 6), brute_force(line, 6));
}

TEST(Knn, SameForAnyNumberOfThreads) {
  const Cloud surface = sphere(20000, 13), dense = uniform(3000, 10, 14);
  const int before = num_threads();
  set_num_threads(1);
  const auto surface_one = nearest(surface, 5), dense_one = nearest(dense, 5);
  set_num_threads(2);
  EXPECT_EQ(nearest(surface, 5), surface_one);
  EXPECT_EQ(nearest(dense, 5), dense_one);
  set_num_threads(before);
}

TEST(Knn, CellsNeedFewDimensions) {
  EXPECT_THROW(nearest(uniform(5, 4, 1), 2, KnnMethod::cells), Error);
}

// The shortcuts for differences that are not far away give the bits of remainder.
TEST(Knn, NearestImageIsTheRemainder) {
  RandomStream random(21, 3);
  for (int trial = 0; trial < 200000; ++trial) {
    const double length =
        std::ldexp(0.5 + random.next_double(), static_cast<int>(random.next_double() * 40) - 20);
    const double difference = (2 * random.next_double() - 1) * length * (trial % 2 == 0 ? 2 : 1e4);
    EXPECT_EQ(nearest_image(difference, length), std::abs(std::remainder(difference, length)));
  }
  for (const double half : {-2.5, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5}) {
    EXPECT_EQ(nearest_image(half * 3, 3), std::abs(std::remainder(half * 3, 3.0))) << half;
  }
  EXPECT_EQ(nearest_image(-7.25, 0), 7.25);
}

}  // namespace
}  // namespace topomask
