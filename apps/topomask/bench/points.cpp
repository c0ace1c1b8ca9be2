// `topomask bench points`: the paper's point-cloud layer, from coordinates to attention (Sec. 4, App. D).
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/attention_peers.h"
#include "bench/device_limits.h"
#include "bench/machine.h"
#include "bench/timing.h"
#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "options/choices.h"
#include "options/dtypes.h"
#include "options/options.h"
#include "program_version.h"
#include "table.h"
#include "topomask/device.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"

namespace topomask::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchPointsCommand {
  RunOptions run;
  std::int64_t num_points = 32768, k = 3, hops = 3, heads = 1, d = 64;
  at::ScalarType dtype = at::kFloat;
  std::string device_word = "cpu";
  int repeats = 11;
};

struct Part {
  std::string name;
  std::function<void()> run;
  Work work = {};
  std::vector<double> seconds = {};
};

// Walks that take every path of `hops` hops once: the mask is exact.
FeatureOptions exact_walks(const BenchPointsCommand& command) {
  FeatureOptions options;
  options.ensembles = Ensembles::asymmetric;
  options.walks.length = LengthLaw::fixed;
  options.walks.max_hops = static_cast<int>(command.hops);
  options.walks.coupling = Coupling::repelling;
  options.walks.num_walks = 1;
  for (std::int64_t hop = 0; hop < command.hops; ++hop) options.walks.num_walks *= command.k;
  options.walks.seed = command.run.seed;
  return options;
}

std::vector<Part> make_parts(const BenchPointsCommand& command, c10::Device device) {
  const auto points =
      std::make_shared<at::Tensor>(torus_points(command.num_points, command.run.seed).to(device));
  at::manual_seed(command.run.seed);
  const at::TensorOptions half = at::TensorOptions(command.dtype).device(device);
  const std::vector<std::int64_t> shape = {1, command.heads, command.num_points, command.d};
  const auto operands = std::make_shared<Operands>(
      Operands{at::randn(shape, half), at::randn(shape, half), at::randn(shape, half),
               at::ones({command.hops + 1}, half.dtype(at::kFloat))});
  const FeatureOptions options = exact_walks(command);
  const KnnOptions neighbours{.k = command.k, .symmetric = false};
  const auto graph_of = [=] { return normalise(knn_graph(*points, neighbours), Normalisation::random_walk); };
  const auto graph = std::make_shared<Graph>(graph_of());
  const auto attend = [=](GraphFeatures features) {
    std::vector<GraphFeatures> sets;
    sets.push_back(std::move(features));
    const auto mask = std::make_shared<const GrfMask>(std::move(sets), operands->modulation);
    AttentionOptions engine;
    engine.engine = Engine::mask;
    attention(operands->q, operands->k, operands->v, mask, engine);
  };
  const auto features = std::make_shared<GraphFeatures>(sample_features(*graph, options));
  // What each part reads and writes, once.
  const double point_bytes = bytes_of({*points}),
               index_bytes = bytes_of({knn_indices(*points, neighbours.k)});
  const double graph_bytes = bytes_of({graph->row_ptr, graph->col, graph->weight});
  const double feature_bytes = bytes_of(features->query);
  const double operand_bytes = 4 * bytes_of({operands->v});
  std::vector<Part> parts = {
      {"neighbours", [=] { knn_indices(*points, neighbours.k); }, {.bytes = point_bytes + index_bytes}},
      {"graph", [=] { graph_of(); }, {.bytes = point_bytes + graph_bytes}},
      {"features", [=] { sample_features(*graph, options); }, {.bytes = graph_bytes + feature_bytes}},
      {"attention", [=] { attend(*features); }, {.bytes = feature_bytes + operand_bytes}},
      {"all",
       [=] { attend(sample_features(graph_of(), options)); },
       {.bytes = point_bytes + 2 * (graph_bytes + feature_bytes) + operand_bytes}},
      {"linear", [=] { unmasked_linear_attention(*operands, FeatureMap()); }, {.bytes = operand_bytes}},
      {"softmax",
       [=] { at::scaled_dot_product_attention(operands->q, operands->k, operands->v); },
       {.bytes = operand_bytes}},
  };
  constexpr std::int64_t kMostBruteForce = 65536;  // 17 GB of distances
  if (device.is_cuda() && command.num_points <= kMostBruteForce) {
    parts.push_back({"neighbours by cdist and topk",
                     [=] { at::cdist(*points, *points).topk(neighbours.k + 1, -1, false); },
                     {.bytes = point_bytes + index_bytes}});
  }
  return parts;
}

void run_bench_points(const BenchPointsCommand& command) {
  set_num_threads(command.run.threads.value_or(2));
  const c10::Device device = parse_device(command.device_word);
  check(command.num_points > command.k, "--points: expected more than k = {}, got {}", command.k,
        command.num_points);
  check(command.k >= 1 && command.k <= 16, "--k: expected 1 to 16, got {}", command.k);
  check(command.hops >= 0 && command.hops <= 4, "--hops: expected 0 to 4, got {}", command.hops);
  check(command.heads >= 1 && command.d >= 1, "--heads and --d: expected at least 1");
  check(command.repeats >= 1, "--repeats: expected at least 1, got {}", command.repeats);
  const at::NoGradGuard no_grad;
  std::vector<Part> parts = make_parts(command, device);
  if (device.is_cpu()) parts.erase(parts.begin() + 6);  // softmax over 32768 points takes a CPU minutes
  const DeviceLimits limits = measure_limits(device, command.dtype);
  for (const Part& part : parts) part.run();
  std::vector<TimedWork> works;
  for (const Part& part : parts) works.push_back({part.run, command.repeats});
  time_in_turns(device, works);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].seconds = works[i].seconds;
  const Json setting = {{"points", command.num_points},
                        {"k", command.k},
                        {"hops", command.hops},
                        {"heads", command.heads},
                        {"d", command.d},
                        {"dtype", word_of(command.dtype)},
                        {"device", device.is_cuda() ? device_name(device) : cpu_model()},
                        {"threads", num_threads()},
                        {"repeats", command.repeats},
                        {"version", program_version()}};
  if (command.run.json) {
    Json json = {{"results", Json::array()}, {"limits", limits.to_json()}, {"setting", setting}};
    for (const Part& part : parts) {
      const Timing timing = summarise_times(part.seconds);
      Json result = {
          {"name", part.name}, {"seconds_median", timing.median}, {"seconds_spread", timing.spread}};
      limits.add_to(result, part.work, timing.median);
      json["results"].push_back(std::move(result));
    }
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    Table table({"part", "median", "spread", "of bytes/s"});
    for (const Part& part : parts) {
      const Timing timing = summarise_times(part.seconds);
      table.add_row({part.name, format_seconds(timing.median), format_seconds(timing.spread),
                     limits.bytes_share(part.work, timing.median)});
    }
    table.print();
    fmt::print("{}\n", limits.to_string(std::string(word_of(command.dtype))));
    fmt::print("{}\n", in_words(setting));
  }
}

}  // namespace

void add_bench_points_command(CLI::App& bench) {
  CLI::App* sub = bench.add_subcommand("points", "Point clouds: neighbours, features and attention");
  const auto command = std::make_shared<BenchPointsCommand>();
  const auto add = [&](const char* flag, auto& value, const char* description) {
    sub->add_option(flag, value, description)->capture_default_str();
  };
  add("--points", command->num_points, "Number of random points on a torus");
  add("--k", command->k, "Nearest neighbours per point");
  add("--hops", command->hops, "Hops of the walks; they take every path, so the mask is exact");
  add("--heads", command->heads, "Attention heads");
  add("--d", command->d, "Channels of q, k and v per head");
  add("--repeats", command->repeats, "Timed runs per part; parts take turns");
  add_choice(*sub, "Options", "--dtype", command->dtype, "Data type of q, k and v");
  add_device_option(*sub, command->device_word);
  add_run_options(*sub, command->run);
  sub->get_option("--threads")->description("Number of threads (default: 2)");
  sub->footer(
      "graph: neighbours and their normalised rows. all: graph, features and attention, one after the "
      "other.\n"
      "linear: unmasked, plain torch. softmax: torch's scaled_dot_product_attention, on a GPU.\n"
      "of bytes/s: bytes that a part must read and write once, as a share of the speed of a copy.\n"
      "Examples:\n"
      "  topomask bench points --points 8192\n"
      "  topomask bench points --device cuda --dtype bfloat16 --json");
  sub->callback([command] { run_bench_points(*command); });
}

}  // namespace topomask::cli
