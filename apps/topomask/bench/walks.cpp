// `topomask bench walks`: random walks, with the peer measured in the same process and in turns.
#include <ATen/ops/ge.h>
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "bench/device_limits.h"
#include "bench/machine.h"
#include "bench/timing.h"
#include "bench/walker_loop.h"
#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "options/options.h"
#include "program_version.h"
#include "progress.h"
#include "table.h"
#include "topomask/device.h"
#include "topomask/features.h"

namespace topomask::cli {
namespace {

constexpr double kFeaturePHalt = 0.5;

struct BenchWalksCommand {
  RunOptions run;
  GraphOptions graph;
  std::int64_t num_walks = 16;
  int hops = 8;
  std::optional<double> p_halt;
  int repeats = 7;
  std::string device_word = "cpu";
  c10::Device device = c10::kCPU;
};

struct Results {
  std::int64_t topomask_steps = 0, loop_steps = 0;
  // Seconds; `drawing` is a part of `loop`, `features_on_cpu` is measured beside a GPU alone.
  std::vector<double> topomask, loop, drawing, features, features_on_cpu;
  Work walk_work, feature_work;  // what is written
  DeviceLimits limits;

  // The loop with its uniforms drawn beforehand.
  Timing loop_alone() const {
    std::vector<double> seconds = loop;
    for (std::size_t i = 0; i < seconds.size(); ++i) seconds[i] -= drawing[i];
    return summarise_times(seconds);
  }
};

nlohmann::ordered_json result_json(const char* name, const Timing& timing, std::int64_t steps) {
  return {{"name", name},
          {"seconds_median", timing.median},
          {"seconds_spread", timing.spread},
          {"steps", steps},
          {"steps_per_second", static_cast<double>(steps) / timing.median}};
}

void print_result(const BenchWalksCommand& command, const Graph& graph, const Results& results) {
  const Timing ours = summarise_times(results.topomask), loop = summarise_times(results.loop),
               drawing = summarise_times(results.drawing), alone = results.loop_alone(),
               features = summarise_times(results.features);
  const double ratio = loop.median / ours.median, ratio_alone = alone.median / ours.median;
  if (command.run.json) {
    nlohmann::ordered_json loop_row = result_json("per-walker loop", loop, results.loop_steps);
    loop_row["seconds_drawing"] = drawing.median;
    nlohmann::ordered_json json = {
        {"results", {result_json("topomask", ours, results.topomask_steps), std::move(loop_row)}}};
    json["ratio"] = ratio;
    json["ratio_without_drawing"] = ratio_alone;
    results.limits.add_to(json["results"][0], results.walk_work, ours.median);
    json["features"] = {{"walks", command.num_walks},
                        {"p_halt", kFeaturePHalt},
                        {"max_hops", WalkOptions().max_hops},
                        {"seconds_median", features.median},
                        {"seconds_spread", features.spread}};
    results.limits.add_to(json["features"], results.feature_work, features.median);
    json["limits"] = results.limits.to_json();
    if (!results.features_on_cpu.empty()) {
      const double on_cpu = summarise_times(results.features_on_cpu).median;
      json["features"]["seconds_on_cpu"] = on_cpu;
      json["features"]["ratio_to_cpu"] = on_cpu / features.median;
    }
    json["setting"] = {{"graph", command.graph.spec},
                       {"nodes", graph.num_nodes()},
                       {"entries", graph.num_entries()},
                       {"walks", command.num_walks},
                       {"hops", command.hops},
                       {"p_halt", command.p_halt ? nlohmann::ordered_json(*command.p_halt) : nullptr},
                       {"repeats", command.repeats},
                       {"spread", "largest - smallest"}};
    json["machine"] = {{"version", program_version()},
                       {"threads", num_threads()},
                       {"cpu", cpu_model()},
                       {"gpu", device_name(command.device)}};
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    Table table({"walks", "median", "spread", "steps"});
    const auto add = [&](const char* name, const Timing& timing, std::int64_t steps) {
      table.add_row({name, format_seconds(timing.median), format_seconds(timing.spread),
                     format_rate(static_cast<double>(steps) / timing.median)});
    };
    add("topomask", ours, results.topomask_steps);
    add("per-walker loop", loop, results.loop_steps);
    add("- without drawing", alone, results.loop_steps);
    table.print();
    fmt::print("ratio {:.2f}, {:.2f} without drawing; coalesced features (p_halt {}) in {}\n", ratio,
               ratio_alone, kFeaturePHalt, format_seconds(features.median));
    fmt::print("walks are written at {} of the bytes/s of a copy, features at {}; {}\n",
               results.limits.bytes_share(results.walk_work, ours.median),
               results.limits.bytes_share(results.feature_work, features.median),
               results.limits.to_string("float32"));
    if (!results.features_on_cpu.empty()) {
      const double on_cpu = summarise_times(results.features_on_cpu).median;
      fmt::print("features on the CPU in {}: {} is {:.1f} times as fast\n", format_seconds(on_cpu),
                 device_name(command.device), on_cpu / features.median);
    }
    fmt::print("{}: {} nodes, {} walks of {} hops, {} repeats, {} thread(s), {}, topomask {}\n",
               command.graph.spec, format_count(static_cast<double>(graph.num_nodes())), command.num_walks,
               command.hops, command.repeats, num_threads(), cpu_model(), program_version());
  }
}

WalkOptions walk_options(const BenchWalksCommand& command) {
  WalkOptions options;
  options.num_walks = command.num_walks;
  options.max_hops = command.hops;
  options.length = command.p_halt ? LengthLaw::geometric : LengthLaw::fixed;
  options.p_halt = command.p_halt.value_or(options.p_halt);
  options.seed = command.run.seed;
  check_walk_options(options);
  return options;
}

void run_bench_walks(BenchWalksCommand& command) {
  set_num_threads(command.run.threads.value_or(1));
  command.device = parse_device(command.device_word);
  check(command.repeats >= 1, "--repeats: expected at least 1, got {}", command.repeats);
  const WalkOptions options = walk_options(command);
  const Graph graph = command.graph.load_raw();
  check(graph.num_nodes() > 0, "--graph: '{}' has no nodes", command.graph.spec);
  const Graph there = graph.to(command.device);  // where our walks run; the loop is the CPU's
  const WalkerLoop loop(graph, command.num_walks, command.hops, command.p_halt, command.run.seed);

  Results results;
  // The first runs are not timed: they count the steps really taken, and warm the caches.
  const auto count_steps = [&](const at::Tensor& walks) {
    return walks.ge(0).sum().item<std::int64_t>() - graph.num_nodes() * command.num_walks;
  };
  results.limits = measure_limits(command.device, at::kFloat);
  const at::Tensor walks = sample_walks(there, options);
  results.topomask_steps = count_steps(walks);
  results.walk_work.bytes = bytes_of({walks});
  results.loop_steps = count_steps(loop.walk(loop.draw()));
  Progress progress("repeats", command.run.quiet);
  for (int repeat = 0; repeat < command.repeats; ++repeat) {
    // In turns, so that a change of the machine's speed affects both.
    auto start = Clock::now();
    sample_walks(there, options);
    synchronise(command.device);
    results.topomask.push_back(seconds_since(start));
    start = Clock::now();
    const WalkerLoop::Uniforms uniforms = loop.draw();
    results.drawing.push_back(seconds_since(start));
    loop.walk(uniforms);
    results.loop.push_back(seconds_since(start));
    progress.update(repeat + 1, 2 * command.repeats);
  }

  WalkOptions feature_options = options;
  feature_options.length = LengthLaw::geometric;
  feature_options.p_halt = kFeaturePHalt;
  feature_options.max_hops = WalkOptions().max_hops;
  results.feature_work.bytes = bytes_of(sample_walk_features(there, feature_options));
  for (int repeat = 0; repeat < command.repeats; ++repeat) {
    auto start = Clock::now();
    sample_walk_features(there, feature_options);
    synchronise(command.device);
    results.features.push_back(seconds_since(start));
    if (command.device.is_cuda()) {
      start = Clock::now();
      sample_walk_features(graph, feature_options);
      results.features_on_cpu.push_back(seconds_since(start));
    }
    progress.update(command.repeats + repeat + 1, 2 * command.repeats);
  }
  erase_progress_line();
  print_result(command, graph, results);
}

}  // namespace

void add_bench_walks_command(CLI::App& bench) {
  CLI::App* sub = bench.add_subcommand("walks", "Random walks against a plain per-walker loop");
  const auto command = std::make_shared<BenchWalksCommand>();
  add_graph_options(*sub, command->graph, "grid:181x181");
  sub->add_option("--walks", command->num_walks, "Walks per node")->capture_default_str();
  sub->add_option("--hops", command->hops, "Hops per walk")->capture_default_str();
  sub->add_option("--p-halt", command->p_halt, "Probability that a walk halts at each node (default: never)");
  sub->add_option("--repeats", command->repeats, "Timed runs per row")->capture_default_str();
  add_device_option(*sub, command->device_word);
  add_run_options(*sub, command->run);
  sub->get_option("--threads")->description("Number of threads (default: 1)");
  sub->footer(
      "The loop works as torch_cluster's random_walk does on the CPU: it draws uniforms with torch::rand,\n"
      "then walks with int64 indices. 'without drawing' leaves out the time of the draws.\n"
      "Examples:\n"
      "  topomask bench walks --graph grid:181x181\n"
      "  topomask bench walks --graph regular:2000000,8 --walks 4 --repeats 3 --json\n"
      "  topomask bench walks --graph grid:1000x1000 --device cuda");
  sub->callback([command] { run_bench_walks(*command); });
}

}  // namespace topomask::cli
