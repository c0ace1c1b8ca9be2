// k nearest neighbours of points on a surface: topomask against nanoflann, build and query, one thread each.
#include <benchmark/benchmark.h>

#include <cmath>
#include <nanoflann.hpp>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "graph/cpu/knn.h"

namespace {

// A bumpy sphere, in random order.
std::vector<float> surface(std::int64_t count) {
  topomask::RandomStream random(7, 0);
  std::vector<float> points;
  for (std::int64_t i = 0; i < count; ++i) {
    const double z = 2 * random.next_double() - 1, angle = 6.283185307179586 * random.next_double();
    const double ring = std::sqrt(1 - z * z), radius = 1 + 0.2 * std::sin(5 * angle) * ring;
    points.push_back(static_cast<float>(radius * ring * std::cos(angle)));
    points.push_back(static_cast<float>(radius * ring * std::sin(angle)));
    points.push_back(static_cast<float>(radius * z));
  }
  return points;
}

struct NanoflannPoints {
  const std::vector<float>& coordinate;

  std::size_t kdtree_get_point_count() const { return coordinate.size() / 3; }
  float kdtree_get_pt(std::size_t i, std::size_t axis) const { return coordinate[3 * i + axis]; }
  template <class Box>
  bool kdtree_get_bbox(Box&) const {
    return false;
  }
};

template <class T>
topomask::NeighbourSearch<T> search_among(const std::vector<T>& points) {
  topomask::NeighbourSearch<T> search;
  search.points = search.queries = {points.data(), static_cast<std::int64_t>(points.size()) / 3, 3};
  search.skip_own = true;
  return search;
}

template <class T>
void nearest(benchmark::State& state, const topomask::NeighbourSearch<T>& search,
             topomask::KnnMethod method) {
  topomask::set_num_threads(1);
  std::vector<std::int32_t> out(static_cast<std::size_t>(state.range(0) * state.range(1)));
  topomask::NeighbourLists<T> lists;
  lists.k = state.range(1);
  lists.index = out.data();
  for (auto _ : state) {
    topomask::nearest_neighbours(search, lists, method);
    benchmark::DoNotOptimize(out.data());
  }
}

void with_topomask(benchmark::State& state, topomask::KnnMethod method) {
  const std::vector<float> points = surface(state.range(0));
  nearest(state, search_among(points), method);
}

void of_doubles(benchmark::State& state) {
  const std::vector<float> points = surface(state.range(0));
  const std::vector<double> doubles(points.begin(), points.end());
  nearest(state, search_among(doubles), topomask::KnnMethod::automatic);
}

void in_a_box(benchmark::State& state) {
  const std::vector<float> points = surface(state.range(0));
  const double box[3] = {2.5, 2.5, 2.5};
  auto search = search_among(points);
  search.box = box;
  nearest(state, search, topomask::KnnMethod::automatic);
}

void of_queries(benchmark::State& state) {
  const std::vector<float> points = surface(state.range(0) / 4), queries = surface(state.range(0));
  auto search = search_among(points);
  search.queries = search_among(queries).queries;
  search.skip_own = false;
  nearest(state, search, topomask::KnnMethod::automatic);
}

// Graphs of 1024 points.
void in_batches(benchmark::State& state) {
  topomask::set_num_threads(1);
  const std::vector<float> points = surface(state.range(0));
  std::vector<std::int64_t> ptr;
  for (std::int64_t first = 0; first <= state.range(0); first += 1024) ptr.push_back(first);
  std::vector<std::int32_t> out(static_cast<std::size_t>(state.range(0) * state.range(1)));
  topomask::NeighbourLists<float> lists;
  lists.k = state.range(1);
  lists.index = out.data();
  for (auto _ : state) {
    topomask::nearest_neighbours(search_among(points), {ptr, ptr}, lists);
    benchmark::DoNotOptimize(out.data());
  }
}

// About k neighbours each.
void within_radius(benchmark::State& state) {
  topomask::set_num_threads(1);
  const std::vector<float> points = surface(state.range(0));
  auto search = search_among(points);
  constexpr double kArea = 13;
  search.limit = static_cast<double>(state.range(1)) * kArea / 3.14 / static_cast<double>(state.range(0));
  const std::vector<std::int64_t> ptr = {0, state.range(0)};
  std::vector<std::int64_t> row_ptr(static_cast<std::size_t>(state.range(0)) + 1);
  std::vector<std::int32_t> col;
  std::vector<float> distance2;
  for (auto _ : state) {
    topomask::neighbours_within<float>(search, {ptr, ptr}, row_ptr.data(), [&](std::int64_t entries) {
      col.resize(static_cast<std::size_t>(entries));
      distance2.resize(col.size());
      return topomask::RadiusRows<float>{col.data(), distance2.data()};
    });
    benchmark::DoNotOptimize(col.data());
  }
  state.counters["per_query"] = static_cast<double>(col.size()) / static_cast<double>(state.range(0));
}

void with_nanoflann(benchmark::State& state) {
  using Tree = nanoflann::KDTreeSingleIndexAdaptor<nanoflann::L2_Simple_Adaptor<float, NanoflannPoints>,
                                                   NanoflannPoints, 3, std::uint32_t>;
  const std::vector<float> coordinate = surface(state.range(0));
  const NanoflannPoints points{coordinate};
  const auto k = static_cast<std::size_t>(state.range(1));
  std::vector<std::uint32_t> index(k + 1), out(coordinate.size() / 3 * k);
  std::vector<float> distance(k + 1);
  for (auto _ : state) {
    Tree tree(3, points, nanoflann::KDTreeSingleIndexAdaptorParams(10));
    tree.buildIndex();
    for (std::size_t i = 0; i < coordinate.size() / 3; ++i) {
      // One more than k, because a point finds itself.
      tree.knnSearch(coordinate.data() + 3 * i, k + 1, index.data(), distance.data());
      std::copy(index.begin() + 1, index.end(), out.begin() + static_cast<std::ptrdiff_t>(i * k));
    }
    benchmark::DoNotOptimize(out.data());
  }
}

void nanoflann_radius(benchmark::State& state) {
  using Tree = nanoflann::KDTreeSingleIndexAdaptor<nanoflann::L2_Simple_Adaptor<float, NanoflannPoints>,
                                                   NanoflannPoints, 3, std::uint32_t>;
  const std::vector<float> coordinate = surface(state.range(0));
  const NanoflannPoints points{coordinate};
  constexpr double kArea = 13;
  const auto limit = static_cast<float>(static_cast<double>(state.range(1)) * kArea / 3.14 /
                                        static_cast<double>(state.range(0)));
  std::vector<std::pair<std::uint32_t, float>> found;
  for (auto _ : state) {
    Tree tree(3, points, nanoflann::KDTreeSingleIndexAdaptorParams(10));
    tree.buildIndex();
    std::size_t all = 0;
    for (std::size_t i = 0; i < coordinate.size() / 3; ++i) {
      all += tree.radiusSearch(coordinate.data() + 3 * i, limit, found, nanoflann::SearchParams(0, 0, false));
    }
    benchmark::DoNotOptimize(all);
  }
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"N", "k"})->Unit(benchmark::kMillisecond);
  for (const int count : {32768, 262144}) {
    for (const int k : {3, 16}) bench->Args({count, k});
  }
}

BENCHMARK_CAPTURE(with_topomask, cells, topomask::KnnMethod::automatic)->Apply(sizes);
BENCHMARK_CAPTURE(with_topomask, tree, topomask::KnnMethod::tree)->Apply(sizes);
BENCHMARK(with_nanoflann)->Apply(sizes);
BENCHMARK(of_doubles)->Apply(sizes);
BENCHMARK(in_a_box)->Apply(sizes);
BENCHMARK(of_queries)->Apply(sizes);
BENCHMARK(in_batches)->Apply(sizes);
BENCHMARK(within_radius)->Apply(sizes);
BENCHMARK(nanoflann_radius)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
