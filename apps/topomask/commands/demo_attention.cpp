#include "commands/demo_attention.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "bench/attention_peers.h"
#include "bench/machine.h"
#include "bench/timing.h"
#include "core/parallel.h"
#include "draw/chart.h"
#include "options/options.h"
#include "progress.h"
#include "provenance.h"
#include "table.h"
#include "topomask/graph_builders.h"
#include "topomask/theory.h"

namespace topomask::cli {
namespace {

constexpr std::int64_t kChannels = 64, kWalks = 4, kSmallestSide = 64;
constexpr std::int64_t kLargestSoftmaxSide = 128;  // beyond, its square takes too long for a demonstration
constexpr int kRepeats = 5, kMaxHops = 10;

struct SizeResult {
  std::optional<Timing> softmax;
  Timing linear, masked;
  double nonzeros_per_row = 0;
  std::int64_t peak_bytes = 0;  // of inputs, mask and masked attention together
};

SizeResult measure(std::int64_t side, std::uint64_t seed) {
  SizeResult result;
  const PeakMemory memory;
  const Graph graph = normalise(grid_graph({side, side}), Normalisation::symmetric);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto random = [&] { return at::randn({1, 1, graph.num_nodes(), kChannels}, generator, at::kFloat); };
  Operands x{random(), random(), random(), {}};
  FeatureOptions options;
  options.walks.num_walks = kWalks;
  options.walks.max_hops = kMaxHops;
  options.walks.seed = seed;
  x.modulation = at::tensor(feature_modulation(NodeKernel(), options), at::kFloat);
  const GrfMask mask(graph, options, x.modulation);
  // As in `bench attention`: every pass computes Phi and M for the current f; walks and pattern are there.
  const auto masked = [&] { attention(x.q, x.k, x.v, mask.with_f(x.modulation)); };
  std::vector<TimedWork> works = {{masked, kRepeats},
                                  {[&] { unmasked_linear_attention(x, FeatureMap{}); }, kRepeats}};
  if (side <= kLargestSoftmaxSide)
    works.push_back({[&] { at::scaled_dot_product_attention(x.q, x.k, x.v); }, kRepeats});
  masked();
  result.peak_bytes = memory.bytes();
  result.nonzeros_per_row =
      static_cast<double>(mask.profile().entries) / static_cast<double>(graph.num_nodes());
  for (std::size_t i = 1; i < works.size(); ++i) works[i].call();
  time_in_turns(c10::kCPU, works);
  result.masked = summarise_times(works[0].seconds);
  result.linear = summarise_times(works[1].seconds);
  if (works.size() > 2) result.softmax = summarise_times(works[2].seconds);
  return result;
}

nlohmann::ordered_json timing_json(const Timing& timing) {
  return {{"seconds_median", timing.median}, {"seconds_spread", timing.spread}};
}

}  // namespace

nlohmann::ordered_json demonstrate_attention(const AttentionDemo& demo) {
  const at::NoGradGuard no_grad;
  Table table({"grid", "nodes", "softmax", "linear", "GRF-masked", "mask nonzeros per row", "peak memory"});
  const auto line = [](const char* label, std::size_t colour) {
    return Series{.label = label, .x = {}, .y = {}, .colour = series_colour(colour)};
  };
  Series softmax = line("softmax", 0), linear = line("linear, no mask", 1), masked = line("GRF-masked", 2);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  Progress progress("attention", demo.quiet);
  for (std::int64_t side = kSmallestSide; side <= demo.largest; side *= 2) {
    const SizeResult result = measure(side, demo.seed);
    const auto nodes = static_cast<double>(side * side);
    const auto add = [nodes](Series& series, const Timing& timing) {
      series.x.push_back(nodes);
      series.y.push_back(timing.median);
    };
    add(linear, result.linear);
    add(masked, result.masked);
    if (result.softmax) add(softmax, *result.softmax);
    nlohmann::ordered_json row = {{"nodes", side * side},
                                  {"linear", timing_json(result.linear)},
                                  {"masked", timing_json(result.masked)},
                                  {"mask_nonzeros_per_row", result.nonzeros_per_row},
                                  {"peak_bytes", result.peak_bytes}};
    if (result.softmax) row["softmax"] = timing_json(*result.softmax);
    rows.push_back(std::move(row));
    table.add_row({fmt::format("{0} x {0}", side), format_count(nodes),
                   result.softmax ? format_seconds(result.softmax->median) : "-",
                   format_seconds(result.linear.median), format_seconds(result.masked.median),
                   fmt::format("{:.1f}", result.nonzeros_per_row),
                   result.peak_bytes < 0 ? "?" : format_bytes(static_cast<double>(result.peak_bytes))});
    progress.update(side * side, demo.largest * demo.largest);
  }
  erase_progress_line();
  const auto slope = [](const Series& series) { return log_log_slope(series.x, series.y); };
  const nlohmann::ordered_json slopes = {
      {"softmax", slope(softmax)}, {"linear", slope(linear)}, {"masked", slope(masked)}};
  if (demo.print) {
    fmt::print("\n3. Time of attention on a grid, {} walks, d = {}, one head, {} thread(s)\n\n", kWalks,
               kChannels, num_threads());
    table.print();
    fmt::print("\nlog-log slopes: softmax {:.2f}, linear {:.2f}, GRF-masked {:.2f}; {}\n", slope(softmax),
               slope(linear), slope(masked), cpu_model());
  }
  write_chart({.title = "Time of attention against the number of nodes",
               .x_axis = {"nodes of a square grid", true},
               .y_axis = {"time of a forward pass", true, "s"},
               .series = {softmax, linear, masked},
               .caption = fmt::format(
                   "One head, d = {}, float32, {} walks per node. Medians of {} passes in turns, after "
                   "one that is not timed. A masked pass computes the values of the mask for "
                   "the current f; walks and pattern are made once per graph and not timed.",
                   kChannels, kWalks, kRepeats)},
              provenance(), demo.stem);
  return {{"slopes", slopes}, {"rows", rows}};
}

}  // namespace topomask::cli
