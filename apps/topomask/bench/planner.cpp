// `topomask bench planner`: predicted and measured time of each engine.
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/engine_case.h"
#include "bench/machine.h"
#include "bench/timing.h"
#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "options/choices.h"
#include "options/dtypes.h"
#include "options/options.h"
#include "program_version.h"
#include "progress.h"
#include "table.h"
#include "topomask/device.h"
#include "topomask/graph_io.h"
#include "topomask/grf_mask.h"

namespace topomask::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchPlannerCommand {
  RunOptions run;
  WalkFlags walks;
  std::vector<std::string> graphs;
  std::string folder;
  std::int64_t num_walks = 8, heads = 1, d = 64;
  at::ScalarType dtype = at::kFloat;
  bool fixed_f = false;
  int repeats = 5;
  double budget = 4;
  std::string device_word = "cpu";
  c10::Device device = c10::kCPU;
};

// Local ones first: grids, meshes (grids with diagonals, points on a surface), roads (long and thin), then
// random ones, then hubs.
const std::vector<std::string> kGraphs = {
    "grid:16x16",      "grid:64x64",      "grid:181x181",  "grid:24x24x24", "grid:100x100,diagonals",
    "path:20000",      "tree:13",         "torus:4096,16", "torus:32768,8", "er:2000,0.005",
    "er:20000,0.0004", "regular:20000,4", "ba:1000,4",     "ba:5000,2",     "ba:20000,4",
    "hypercube:12"};

struct EngineRow {
  Engine engine = Engine::dense;
  double predicted = 0;
  std::vector<double> seconds;
  std::string reason;  // not empty: why it was not run

  bool ran() const { return !seconds.empty(); }
  double measured() const { return summarise_times(seconds).median; }
  double ratio() const { return predicted / measured(); }
};

struct GraphRow {
  std::string graph;
  MaskProfile profile;
  Engine chosen = Engine::dense;
  std::vector<EngineRow> engines;

  const EngineRow& row_of(Engine engine) const {
    return *std::find_if(engines.begin(), engines.end(),
                         [&](const EngineRow& row) { return row.engine == engine; });
  }
  const EngineRow& best() const {
    return *std::min_element(engines.begin(), engines.end(), [](const EngineRow& a, const EngineRow& b) {
      return a.ran() && (!b.ran() || a.measured() < b.measured());
    });
  }
  // How much longer the planner's engine takes than the best; NaN where it was not run.
  double loss() const {
    const EngineRow& own = row_of(chosen);
    return own.ran() ? own.measured() / best().measured() : std::nan("");
  }
};

GraphRow measure(const BenchPlannerCommand& command, const std::string& spec) {
  GraphOptions source;
  source.spec = spec;
  const Graph graph = source.load().to(command.device);
  check(graph.num_nodes() > 0, "--graphs: '{}' has no nodes", spec);
  const FeatureOptions walks = command.walks.to_feature_options(command.num_walks, command.run.seed);
  AttentionShape shape{1, command.heads, graph.num_nodes(), command.d, command.d, command.dtype};
  shape.device = command.device;
  const EngineCase run = grf_case(graph, walks, shape, !command.fixed_f);
  GraphRow row;
  row.graph = spec;
  AttentionPlan plan = run.plan();
  const auto allowed = [&](const PlanCandidate& c) {
    return c.admissible && c.predicted_cost <= command.budget;
  };
  if (std::any_of(plan.candidates.begin(), plan.candidates.end(),
                  [&](const PlanCandidate& c) { return c.engine == Engine::mask && allowed(c); })) {
    run.mask->patterns();  // from here on the entries are counted
    plan = run.plan();
  }
  row.profile = run.mask->profile();
  row.chosen = plan.engine;
  std::vector<TimedWork> works;
  for (const PlanCandidate& candidate : plan.candidates) {
    EngineRow own;
    own.engine = candidate.engine;
    own.predicted = candidate.predicted_cost;
    if (!candidate.admissible) own.reason = candidate.reason;
    if (candidate.admissible && !allowed(candidate)) own.reason = "it would take longer than --budget";
    TimedWork work{run.pass(candidate.engine), 0};
    if (own.reason.empty()) {
      const auto start = Clock::now();
      work.call();  // makes what is made once
      synchronise(command.device);
      const double affordable = command.budget / std::max(seconds_since(start), 1e-9);
      work.repeats = static_cast<int>(std::clamp(affordable, 1.0, static_cast<double>(command.repeats)));
    }
    works.push_back(std::move(work));
    row.engines.push_back(std::move(own));
  }
  time_in_turns(command.device, works);
  for (std::size_t i = 0; i < works.size(); ++i) row.engines[i].seconds = works[i].seconds;
  return row;
}

struct Summary {
  int predictions = 0, within_twice = 0;
  double worst_ratio = 1, worst_loss = 1;  // the factor between prediction and measurement, either way
};

Summary summarise(const std::vector<GraphRow>& rows) {
  Summary all;
  for (const GraphRow& row : rows) {
    for (const EngineRow& engine : row.engines) {
      if (!engine.ran()) continue;
      const double factor = std::max(engine.ratio(), 1 / engine.ratio());
      ++all.predictions;
      all.within_twice += factor <= 2 ? 1 : 0;
      all.worst_ratio = std::max(all.worst_ratio, factor);
    }
    if (std::isfinite(row.loss())) all.worst_loss = std::max(all.worst_loss, row.loss());
  }
  return all;
}

void print_json(const BenchPlannerCommand& command, const std::vector<GraphRow>& rows) {
  Json json = {{"results", Json::array()}};
  for (const GraphRow& row : rows) {
    Json engines = Json::array();
    for (const EngineRow& engine : row.engines) {
      Json one = {{"engine", word_of(engine.engine)}, {"predicted_seconds", engine.predicted}};
      if (engine.ran()) {
        const Timing timing = summarise_times(engine.seconds);
        one["seconds_median"] = timing.median;
        one["seconds_spread"] = timing.spread;
        one["predicted/measured"] = engine.ratio();
      } else {
        one["reason"] = engine.reason;
      }
      engines.push_back(std::move(one));
    }
    json["results"].push_back({{"graph", row.graph},
                               {"nodes", row.profile.num_nodes},
                               {"feature_nonzeros", row.profile.left_entries},
                               {"mask_nonzeros", row.profile.entries},
                               {"value_multiply_adds", row.profile.value_multiply_adds},
                               {"engines", std::move(engines)},
                               {"chosen", word_of(row.chosen)},
                               {"best", row.best().ran() ? Json(word_of(row.best().engine)) : Json()},
                               {"chosen/best", std::isfinite(row.loss()) ? Json(row.loss()) : Json()}});
  }
  const Summary all = summarise(rows);
  json["summary"] = {{"predictions", all.predictions},
                     {"within_2x", all.within_twice},
                     {"worst_factor", all.worst_ratio},
                     {"worst_chosen/best", all.worst_loss}};
  json["setting"] = {{"walks", command.num_walks},      {"p_halt", command.walks.p_halt},
                     {"heads", command.heads},          {"d", command.d},
                     {"dtype", word_of(command.dtype)}, {"learned_f", !command.fixed_f},
                     {"repeats", command.repeats}};
  Json rates;
  for (const RateField& field : rate_fields()) rates[field.name] = rates_of(command.device).*field.member;
  json["rates"] = std::move(rates);
  json["machine"] = {{"version", program_version()},
                     {"threads", num_threads()},
                     {"device", calibration_key(command.device)}};
  fmt::print("{}\n", json.dump());
}

void print_text(const BenchPlannerCommand& command, const std::vector<GraphRow>& rows) {
  std::vector<std::string> header = {"graph", "nodes", "nnz of M"};
  for (const EngineRow& engine : rows.front().engines) {
    header.push_back(fmt::format("{}: predicted", word_of(engine.engine)));
    header.insert(header.end(), {"measured", "ratio"});
  }
  header.insert(header.end(), {"chosen", "/ best"});
  Table table(header);
  std::string left_out;
  for (const GraphRow& row : rows) {
    std::vector<std::string> cells = {row.graph, format_count(static_cast<double>(row.profile.num_nodes)),
                                      format_count(static_cast<double>(row.profile.entries))};
    for (const EngineRow& engine : row.engines) {
      cells.push_back(format_seconds(engine.predicted));
      cells.push_back(engine.ran() ? format_seconds(engine.measured()) : "");
      cells.push_back(engine.ran() ? fmt::format("{:.2f}", engine.ratio()) : "");
      if (!engine.ran())
        left_out += fmt::format("not run: {} on {}: {}\n", word_of(engine.engine), row.graph, engine.reason);
    }
    cells.emplace_back(word_of(row.chosen));
    cells.push_back(std::isfinite(row.loss()) ? fmt::format("{:.2f}", row.loss()) : "");
    table.add_row(std::move(cells));
  }
  table.print();
  const Summary all = summarise(rows);
  fmt::print(
      "{}{} of {} predictions within a factor of 2, the worst off by {:.2f}; the engine chosen took at most "
      "{:.2f} times the best\n",
      left_out, all.within_twice, all.predictions, all.worst_ratio, all.worst_loss);
  fmt::print("{} walks, p_halt {}, {} head(s), d {}, {}, f {}, {} thread(s), {}, topomask {}\n",
             command.num_walks, command.walks.p_halt, command.heads, command.d, word_of(command.dtype),
             command.fixed_f ? "fixed" : "new in every pass", num_threads(), calibration_key(command.device),
             program_version());
}

// The graphs of a folder, by name, with those of its subfolders.
std::vector<std::string> graphs_in(const std::string& folder) {
  std::error_code status;
  check(std::filesystem::is_directory(folder, status), "--folder: '{}' is not a folder", folder);
  const std::vector<std::string> known = graph_file_extensions();
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    std::filesystem::path name = entry.path();
    if (name.extension() == ".gz" || name.extension() == ".xz") name.replace_extension();
    const bool readable = std::find(known.begin(), known.end(), name.extension().string()) != known.end();
    if (entry.is_regular_file() && readable) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void run_bench_planner(BenchPlannerCommand& command) {
  set_num_threads(command.run.threads.value_or(2));
  command.device = parse_device(command.device_word);
  check(command.repeats >= 1, "--repeats: expected at least 1, got {}", command.repeats);
  check(command.budget > 0, "--budget: expected more than 0 seconds, got {}", command.budget);
  for (const auto& [flag, value] : {std::pair{"--heads", command.heads}, std::pair{"--d", command.d}})
    check(value >= 1 && value <= 65536, "{}: expected 1 to 65536, got {}", flag, value);
  std::vector<std::string> graphs = command.graphs.empty() ? kGraphs : command.graphs;
  std::vector<std::string> files;
  if (!command.folder.empty()) files = graphs_in(command.folder);
  check(command.folder.empty() || !files.empty(), "--folder: '{}' holds no file with a graph",
        command.folder);
  at::manual_seed(command.run.seed);
  Progress progress("graphs", command.run.quiet);
  std::vector<GraphRow> rows;
  std::string unread;
  const auto total = static_cast<std::int64_t>(graphs.size() + files.size());
  for (const std::string& graph : graphs) {
    rows.push_back(measure(command, graph));
    progress.update(static_cast<std::int64_t>(rows.size()), total);
  }
  for (const std::string& file : files) {  // a folder may hold tables that are no graphs
    try {
      rows.push_back(measure(command, file));
    } catch (const Error& error) {
      unread += fmt::format("topomask: warning: left out: {}\n", error.what());
    }
    progress.update(static_cast<std::int64_t>(rows.size()), total);
  }
  erase_progress_line();
  fmt::print(stderr, "{}", unread);
  if (command.run.json) {
    print_json(command, rows);
  } else if (!command.run.quiet) {
    print_text(command, rows);
  }
}

}  // namespace

void add_bench_planner_command(CLI::App& bench) {
  CLI::App* sub = bench.add_subcommand(
      "planner", "Predicted and measured time of each engine, and whether the best was chosen");
  const auto command = std::make_shared<BenchPlannerCommand>();
  sub->add_option("--graphs", command->graphs,
                  "Graphs, in the forms of --graph (default: sixteen generated ones)")
      ->type_name("SPEC ...");
  sub->add_option("--folder", command->folder, "Also use every graph file in this folder")->type_name("DIR");
  const auto add = [&](const char* flag, auto& value, const char* description) {
    sub->add_option(flag, value, description)->capture_default_str();
  };
  add("--heads", command->heads, "Heads; all share one mask");
  add("--d", command->d, "Channels of q, k and v per head");
  add("--repeats", command->repeats, "Timed runs per engine; engines take turns");
  add("--budget", command->budget,
      "Seconds per engine and graph; an engine predicted to take longer is not run");
  sub->add_flag("--fixed-f", command->fixed_f,
                "Use the same f in every pass, so that a CPU keeps the values of the mask");
  add_choice(*sub, "Options", "--dtype", command->dtype, "Data type of q, k and v");
  sub->add_option("--walks", command->num_walks, "Walks per node")->capture_default_str()->group("Walks");
  add_walk_options(*sub, command->walks);
  add_device_option(*sub, command->device_word);
  add_run_options(*sub, command->run);
  sub->get_option("--threads")->description("Number of threads (default: 2)");
  sub->footer(
      "Each forward pass has another f, so its time includes new values of the mask.\n"
      "ratio: predicted over measured time. / best: measured time of the engine that the planner chose, "
      "over\n"
      "the shortest time of all engines that ran.\n"
      "Examples:\n"
      "  topomask bench planner\n"
      "  topomask bench planner --walks 16 --p-halt 0.1 --folder graphs --json\n"
      "  topomask bench planner --heads 8 --dtype bfloat16 --device cuda");
  sub->callback([command] { run_bench_planner(*command); });
}

}  // namespace topomask::cli
