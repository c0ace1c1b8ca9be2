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

void with_topomask(benchmark::State& state, topomask::KnnMethod method) {
  topomask::set_num_threads(1);
  const std::vector<float> points = surface(state.range(0));
  std::vector<std::int32_t> out(static_cast<std::size_t>(state.range(0) * state.range(1)));
  for (auto _ : state) {
    topomask::nearest_neighbours({points.data(), state.range(0), 3}, state.range(1), out.data(), method);
    benchmark::DoNotOptimize(out.data());
  }
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

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"N", "k"})->Unit(benchmark::kMillisecond);
  for (const int count : {32768, 262144}) {
    for (const int k : {3, 16}) bench->Args({count, k});
  }
}

BENCHMARK_CAPTURE(with_topomask, cells, topomask::KnnMethod::automatic)->Apply(sizes);
BENCHMARK_CAPTURE(with_topomask, tree, topomask::KnnMethod::tree)->Apply(sizes);
BENCHMARK(with_nanoflann)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
