// `topomask bench`: speed, with the peer measured in the same process and in turns.
#include <ATen/ops/ge.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench_walks.h"
#include "commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "machine.h"
#include "options.h"
#include "progress.h"
#include "table.h"
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
};

struct Contestant {
  std::string name;
  std::function<at::Tensor()> walk;
  std::vector<double> seconds;
  std::int64_t steps = 0;

  // The first call is not timed: it counts the steps really taken, and warms the caches.
  void warm_up(std::int64_t walkers) { steps = walk().ge(0).sum().item<std::int64_t>() - walkers; }
  void time() {
    const auto start = std::chrono::steady_clock::now();
    walk();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
};

void print_result(const BenchWalksCommand& command, const Graph& graph,
                  const std::vector<Contestant>& contestants, const Timing& features) {
  const double ratio =
      summarise_times(contestants[1].seconds).median / summarise_times(contestants[0].seconds).median;
  if (command.run.json) {
    nlohmann::ordered_json json = {{"results", nlohmann::ordered_json::array()}};
    for (const Contestant& contestant : contestants) {
      const Timing timing = summarise_times(contestant.seconds);
      json["results"].push_back(
          {{"name", contestant.name},
           {"seconds_median", timing.median},
           {"seconds_spread", timing.spread},
           {"steps", contestant.steps},
           {"steps_per_second", static_cast<double>(contestant.steps) / timing.median}});
    }
    json["ratio"] = ratio;
    json["features"] = {{"walks", command.num_walks},
                        {"p_halt", kFeaturePHalt},
                        {"max_hops", kDefaultMaxHops},
                        {"seconds_median", features.median},
                        {"seconds_spread", features.spread}};
    json["setting"] = {{"graph", command.graph.spec},
                       {"nodes", graph.num_nodes()},
                       {"entries", graph.num_entries()},
                       {"walks", command.num_walks},
                       {"hops", command.hops},
                       {"p_halt", command.p_halt ? nlohmann::ordered_json(*command.p_halt) : nullptr},
                       {"repeats", command.repeats},
                       {"spread", "largest - smallest"}};
    json["machine"] = {{"version", TOPOMASK_VERSION}, {"threads", num_threads()}, {"cpu", cpu_model()}};
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    Table table({"walks", "median", "spread", "steps"});
    for (const Contestant& contestant : contestants) {
      const Timing timing = summarise_times(contestant.seconds);
      table.add_row({contestant.name, format_seconds(timing.median), format_seconds(timing.spread),
                     format_rate(static_cast<double>(contestant.steps) / timing.median)});
    }
    table.print();
    fmt::print("ratio {:.2f}; coalesced features (p_halt {}) in {}\n", ratio, kFeaturePHalt,
               format_seconds(features.median));
    fmt::print("{}: {} nodes, {} walks of {} hops, {} repeats, {} thread(s), {}, topomask {}\n",
               command.graph.spec, format_count(static_cast<double>(graph.num_nodes())), command.num_walks,
               command.hops, command.repeats, num_threads(), cpu_model(), TOPOMASK_VERSION);
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

void run_bench_walks(const BenchWalksCommand& command) {
  set_num_threads(command.run.threads.value_or(1));
  check(command.repeats >= 1, "--repeats: expected at least 1, got {}", command.repeats);
  const WalkOptions options = walk_options(command);
  const Graph graph = command.graph.load_raw();
  const std::int64_t walkers = graph.num_nodes() * command.num_walks;
  const WalkerLoop loop(graph, command.num_walks, command.hops, command.p_halt, command.run.seed);
  std::vector<Contestant> contestants = {{"topomask", [&] { return sample_walks(graph, options); }, {}, 0},
                                         {"per-walker loop", [&] { return loop.run(); }, {}, 0}};

  Progress progress("repeats", command.run.quiet);
  for (Contestant& contestant : contestants) contestant.warm_up(walkers);
  for (int repeat = 0; repeat < command.repeats; ++repeat) {
    // In turns, so that a change of the machine's pace meets both.
    for (Contestant& contestant : contestants) contestant.time();
    progress.update(repeat + 1, 2 * command.repeats);
  }

  WalkOptions feature_options = options;
  feature_options.length = LengthLaw::geometric;
  feature_options.p_halt = kFeaturePHalt;
  feature_options.max_hops = kDefaultMaxHops;
  std::vector<double> feature_seconds;
  for (int repeat = 0; repeat < command.repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    sample_walk_features(graph, feature_options);
    feature_seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    progress.update(command.repeats + repeat + 1, 2 * command.repeats);
  }
  erase_progress_line();
  print_result(command, graph, contestants, summarise_times(feature_seconds));
}

void add_walks(CLI::App& bench) {
  CLI::App* sub = bench.add_subcommand("walks", "Random walks against a plain per-walker loop");
  const auto command = std::make_shared<BenchWalksCommand>();
  add_graph_options(*sub, command->graph, "grid:181x181");
  sub->add_option("--walks", command->num_walks, "Walks from every node")->capture_default_str();
  sub->add_option("--hops", command->hops, "Hops of every walk")->capture_default_str();
  sub->add_option("--p-halt", command->p_halt, "Halt with this probability at every node (default: never)");
  sub->add_option("--repeats", command->repeats, "Timed runs of each")->capture_default_str();
  add_run_options(*sub, command->run);
  sub->footer(
      "One thread unless --threads says otherwise. The loop has int64 rows and uniforms drawn before the "
      "clock\n"
      "starts, and writes int64; it is what torch_cluster's random_walk does on the CPU.\n"
      "Examples:\n"
      "  topomask bench walks --graph grid:181x181\n"
      "  topomask bench walks --graph regular:2000000,8 --walks 4 --repeats 3 --json");
  sub->callback([command] { run_bench_walks(*command); });
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed against peers in the same process");
  bench->require_subcommand(1);
  bench->footer("Example:\n  topomask bench walks --graph grid:181x181 --threads 1");
  add_walks(*bench);
}

}  // namespace topomask::cli
