// What walks, features, their values and nearest neighbours cost on a GPU, beside one CPU core and beside the
// time that the bytes they must move would take at the speed of a copy.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "topomask/device.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"

namespace {

using namespace topomask;

const c10::Device kGpu(c10::kCUDA, 0);

// Median over `runs` of what the device does between two events, after a warm-up.
double device_ms(const std::function<void()>& work, int runs = 15) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  std::vector<float> times;
  for (int run = -3; run < runs; ++run) {
    cudaEventRecord(start, stream);
    work();
    cudaEventRecord(stop, stream);
    cudaEventSynchronize(stop);
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    if (run >= 0) times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  return times[runs / 2];
}

// The same, several times in a row, so that the host's share is hidden where nothing waits for the device.
double pipelined_ms(const std::function<void()>& work, int repeats = 10) {
  return device_ms([&] {
           for (int i = 0; i < repeats; ++i) work();
         }) /
         repeats;
}

double cpu_ms(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double copy_bytes_per_ms = 0;

void row(const std::string& what, double ms, double bytes, const std::string& note = "") {
  std::printf("%-58s %9.4f ms", what.c_str(), ms);
  if (bytes > 0)
    std::printf("  %8.1f MB  %5.1f%% of copy", bytes / 1e6, 100 * bytes / copy_bytes_per_ms / ms);
  std::printf("  %s\n", note.c_str());
  std::fflush(stdout);
}

at::Tensor surface(std::int64_t count) {
  RandomStream random(7, 0);
  at::Tensor points = at::empty({count, 3});
  float* out = points.data_ptr<float>();
  for (std::int64_t i = 0; i < count; ++i) {
    const double z = 2 * random.next_double() - 1, angle = 6.283185307179586 * random.next_double();
    const double ring = std::sqrt(1 - z * z), radius = 1 + 0.2 * std::sin(5 * angle) * ring;
    *out++ = static_cast<float>(radius * ring * std::cos(angle));
    *out++ = static_cast<float>(radius * ring * std::sin(angle));
    *out++ = static_cast<float>(radius * z);
  }
  return points;
}

at::Tensor in_morton_order(const at::Tensor& points) {
  return points.index_select(0, morton_order(points)).contiguous();
}

double bytes_of(const WalkFeatures& f) {
  double bytes = 0;
  for (const at::Tensor& part : {f.row_ptr, f.col, f.deposit_ptr, f.hop, f.load})
    bytes += static_cast<double>(part.nbytes());
  return bytes;
}

std::string per_row(const char* what, std::int64_t count, std::int64_t rows) {
  char text[64];
  std::snprintf(text, sizeof text, "%s/row %.1f", what,
                static_cast<double>(count) / static_cast<double>(rows));
  return text;
}

WalkOptions walks(std::int64_t num_walks, int max_hops, double p_halt,
                  Coupling coupling = Coupling::independent) {
  WalkOptions options;
  options.num_walks = num_walks;
  options.max_hops = max_hops;
  options.p_halt = p_halt;
  options.coupling = coupling;
  return options;
}

void bench_knn() {
  for (const std::int64_t n : {std::int64_t{32768}, std::int64_t{131072}, std::int64_t{1} << 20}) {
    const at::Tensor shuffled = surface(n).to(kGpu), ordered = in_morton_order(shuffled);
    for (const std::int64_t k : {3, 8, 16, 64}) {
      if (n > 131072 && k > 16) continue;
      const double bytes = static_cast<double>(n * (12 + 8 * k + 8));
      const std::string name = "kNN graph N=" + std::to_string(n) + " k=" + std::to_string(k);
      row(name, device_ms([&] { knn_graph(shuffled, {.k = k}); }), bytes);
      row(name + ", pipelined", pipelined_ms([&] { knn_graph(shuffled, {.k = k}); }), bytes);
      if (k == 3) row(name + ", points in order", device_ms([&] { knn_graph(ordered, {.k = k}); }), bytes);
    }
    row("kNN graph symmetrised k=8", device_ms([&] { knn_graph(shuffled, {.k = 8, .symmetric = true}); }), 0);
    row("Morton order", device_ms([&] { morton_order(shuffled); }), static_cast<double>(n) * 20);
  }
}

void bench_features() {
  const auto one = [](const std::string& name, const Graph& graph, const WalkOptions& options,
                      bool with_cpu) {
    const WalkFeatures features = sample_walk_features(graph, options);
    const double ms = device_ms([&] { sample_walk_features(graph, options); }, 7);
    std::string note = per_row("entries", features.nnz(), graph.num_nodes()) +
                       per_row(" deposits", features.num_deposits(), graph.num_nodes());
    if (with_cpu) {
      const Graph on_cpu = graph.to(at::kCPU);
      const double cpu = cpu_ms([&] { sample_walk_features(on_cpu, options); });
      char text[64];
      std::snprintf(text, sizeof text, "  one core %.1f ms = %.0fx", cpu, cpu / ms);
      note += text;
    }
    row(name, ms, bytes_of(features), note);
  };
  const auto local = [](std::int64_t n, bool ordered) {
    const at::Tensor points = surface(n).to(kGpu);
    return normalise(knn_graph(ordered ? in_morton_order(points) : points, {.k = 8, .symmetric = true}),
                     Normalisation::symmetric);
  };
  const WalkOptions usual = walks(16, 10, 0.5);
  for (const std::int64_t n : {std::int64_t{32768}, std::int64_t{1} << 20}) {
    const std::string size = " N=" + std::to_string(n);
    one("features n=16 p=.5, kNN 8, in order" + size, local(n, true), usual, true);
    one("features n=16 p=.5, kNN 8, shuffled" + size, local(n, false), usual, n > 100000);
  }
  const Graph graph = local(32768, true);
  one("features n=4 p=.5 N=32768", graph, walks(4, 10, 0.5), false);
  one("features n=16 p=.5 repelling N=32768", graph, walks(16, 10, 0.5, Coupling::repelling), true);
  WalkOptions weighted = usual;
  weighted.step = StepLaw::weighted;
  one("features n=16 p=.5 weighted N=32768", graph, weighted, false);
  one("features n=100 p=.1 100 hops repelling N=32768", graph, walks(100, 100, 0.1, Coupling::repelling),
      false);
  one("features n=1000 p=.1 100 hops N=4096", local(4096, true), walks(1000, 100, 0.1), false);
}

void bench_refresh() {
  const std::int64_t n = 32768, heads = 8;
  const Graph graph = normalise(knn_graph(in_morton_order(surface(n).to(kGpu)), {.k = 8, .symmetric = true}),
                                Normalisation::symmetric);
  for (const std::int64_t num_walks : {2, 4, 8, 16}) {
    const WalkOptions options = walks(num_walks, 10, 0.5);
    const GraphFeatures features = sample_features(graph, {.walks = options});
    const at::Tensor f = at::randn({heads, 11}, features.query.load.options());
    const GrfMask mask({features}, f);
    const auto nnz = mask.entries().at(0).pattern->nnz();
    const std::string tag = " n=" + std::to_string(num_walks);
    const std::string note = per_row("Phi", features.query.nnz(), n) + per_row(" M", nnz, n);
    row("mask: patterns of Phi and M" + tag, device_ms([&] { GrfMask({features}, f).entries(); }, 5), 0,
        note);
    const double value_bytes =
        bytes_of(features.query) + 4.0 * heads * static_cast<double>(features.query.nnz());
    row("values(f), 8 heads" + tag, pipelined_ms([&] { features.query.values(f); }), value_bytes);
    // Phi and M once each, and the pairs that meet in M through the transpose: 12 bytes and a sector each.
    row("refresh Phi and M, 8 heads" + tag, pipelined_ms([&] { mask.with_f(f)->entries(); }),
        value_bytes + 4.0 * heads * static_cast<double>(nnz));
    const at::Tensor leaf = f.clone().requires_grad_();
    const at::Tensor grad = at::randn({heads, nnz}, f.options());
    row("refresh and gradient of f" + tag,
        pipelined_ms([&] { mask.with_f(leaf)->entries().at(0).values.backward(grad); }), 0);
  }
}

void bench_point_cloud() {
  const std::int64_t n = 32768;
  const at::Tensor points = surface(n).to(kGpu), f = at::randn({1, 4}).to(kGpu);
  FeatureOptions options{.walks = walks(27, 3, 0, Coupling::repelling), .ensembles = Ensembles::asymmetric};
  options.walks.length = LengthLaw::fixed;
  const Graph graph = normalise(knn_graph(points, {.k = 3}), Normalisation::random_walk);
  const GraphFeatures features = sample_features(graph, options);
  row("point cloud: kNN", device_ms([&] { knn_graph(points, {.k = 3}); }), 0);
  row("point cloud: normalise", device_ms([&] { normalise(graph, Normalisation::random_walk); }), 0);
  row("point cloud: features (exact)", device_ms([&] { sample_features(graph, options); }),
      bytes_of(features.query),
      per_row("entries", features.query.nnz(), n) + per_row(" deposits", features.query.num_deposits(), n));
  row("point cloud: mask and its values", device_ms([&] { GrfMask({features}, f).entries(); }), 0);
  row("point cloud: all of it", device_ms([&] {
        const Graph g = normalise(knn_graph(points, {.k = 3}), Normalisation::random_walk);
        GrfMask(g, options, f).entries();
      }),
      0);
}

}  // namespace

int main() {
  if (!cuda_is_available()) {
    std::printf("no GPU on this machine\n");
    return 0;
  }
  set_num_threads(1);
  at::manual_seed(1);
  const at::Tensor from = at::empty({std::int64_t{1} << 28}, at::TensorOptions(kGpu).dtype(at::kByte)),
                   to = at::empty_like(from);
  copy_bytes_per_ms = 2.0 * static_cast<double>(from.nbytes()) / device_ms([&] { to.copy_(from); });
  std::printf(
      "copy: %.2f TB/s read and written; bytes below are what must be read or written at least once\n",
      copy_bytes_per_ms / 1e9);
  bench_point_cloud();
  bench_refresh();
  bench_knn();
  bench_features();
}
