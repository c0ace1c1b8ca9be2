// `topomask demo`: the error table, a picture of the mask, and time against the size of the graph for
// features and for attention.
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "bench/timing.h"
#include "commands/commands.h"
#include "commands/demo_attention.h"
#include "core/check.h"
#include "draw/chart.h"
#include "draw/heat_map.h"
#include "options/options.h"
#include "progress.h"
#include "provenance.h"
#include "table.h"
#include "topomask/graph_builders.h"
#include "topomask/theory.h"

namespace topomask::cli {
namespace {

using Json = nlohmann::ordered_json;

struct DemoCommand {
  RunOptions run;
  std::string out = "demo-out";
  std::int64_t trials = 1000;
  std::int64_t largest = 1024;
};

constexpr std::array<std::int64_t, 4> kWalkCounts = {2, 4, 8, 16};

// (I + sigma2 L)^-2 is a series in sigma2 / (1 + sigma2) W: here in W / 4.
constexpr const char* kErrorKernel = "reg-laplacian:d=2,sigma2=0.3333333333333333";

// The reference errors of this estimator (squared, relative), for kWalkCounts.
struct ReferenceRow {
  Coupling coupling;
  std::array<double, 4> error;
};
constexpr ReferenceRow kReference[] = {{Coupling::independent, {.157, .071, .034, .016}},
                                       {Coupling::antithetic, {.130, .060, .029, .014}},
                                       {Coupling::repelling, {.144, .056, .0215, .0076}},
                                       {Coupling::both, {.130, .050, .018, .0058}}};

Json error_table(const DemoCommand& command, bool print) {
  const Graph graph = normalise(karate_club(), Normalisation::symmetric);
  const NodeKernel kernel = NodeKernel::parse(kErrorKernel);
  Table table({"karate club", "walks", "error", "+-", "reference"});
  Chart chart{.title = "Error of the estimated mask on the karate club",
              .x_axis = {"walks per node", true, "", {kWalkCounts.begin(), kWalkCounts.end()}},
              .y_axis = {"squared relative error of M", true},
              .series = {},
              .caption = fmt::format(
                  "Mean of |M_hat - M|\u00b2 / |M|\u00b2 (Frobenius) over {} sets of walks; kernel "
                  "(I + L / 3)^-2.",
                  command.trials)};
  Json rows = Json::array();
  Progress progress("error table", command.run.quiet);
  constexpr std::int64_t kStudies = std::size(kReference) * kWalkCounts.size();
  for (const ReferenceRow& reference : kReference) {
    Series series{.label = std::string(std::string(word_of(reference.coupling))),
                  .x = {},
                  .y = {},
                  .colour = series_colour(chart.series.size())};
    for (std::size_t i = 0; i < kWalkCounts.size(); ++i) {
      FeatureOptions options;
      options.walks.num_walks = kWalkCounts[i];
      options.walks.max_hops = WalkOptions().max_hops;
      options.walks.coupling = reference.coupling;
      options.walks.seed = command.run.seed;
      const auto finished = static_cast<std::int64_t>(rows.size());
      const KernelError result = measure_kernel_error(
          graph, kernel, options, command.trials, [&](std::int64_t done, std::int64_t total) {
            progress.update(finished * total + done, kStudies * total);
          });
      table.add_row({series.label, fmt::format("{}", result.walks), fmt::format("{:.4f}", result.error),
                     fmt::format("{:.4f}", result.error_se), fmt::format("{:.4f}", reference.error[i])});
      rows.push_back({{"coupling", series.label},
                      {"walks", result.walks},
                      {"error", result.error},
                      {"error_se", result.error_se},
                      {"reference", reference.error[i]}});
      series.x.push_back(static_cast<double>(result.walks));
      series.y.push_back(result.error);
    }
    chart.series.push_back(std::move(series));
  }
  erase_progress_line();
  if (print) {
    fmt::print("1. Squared relative error of the estimated mask ({} trials)\n\n", command.trials);
    table.print();
    fmt::print(
        "\nThe kernel is (I + L / 3)^-2 = (9/16) (I - W / 4)^-2, the 2-regularised Laplacian with sigma2 = "
        "1/3.\n");
  }
  write_chart(chart, provenance(), command.out + "/error");
  return rows;
}

HeatMap panel(const std::string& title, const std::string& note, const at::Tensor& values, int rows,
              int columns) {
  const at::Tensor flat = values.contiguous();
  const double* first = flat.const_data_ptr<double>();
  return {title, note, rows, columns, std::vector<double>(first, first + flat.numel())};
}

// The exact mask of a grid of patches beside its estimates: the row of one patch, and the whole matrix.
void draw_masks(const DemoCommand& command) {
  constexpr int kSide = 16, kNodes = kSide * kSide, kCentre = kSide / 2 * kSide + kSide / 2;
  const Graph graph = normalise(grid_graph({kSide, kSide}), Normalisation::symmetric);
  const NodeKernel kernel = NodeKernel::parse("diffusion:sigma2=4");
  FeatureOptions options;
  options.walks.max_hops = WalkOptions().max_hops;
  options.walks.coupling = Coupling::both;
  options.walks.seed = command.run.seed;
  const at::Tensor exact = estimated_target(graph, kernel, options);
  const double norm = exact.pow(2).sum().item<double>();

  std::vector<HeatMap> patch = {
      panel("exact, one patch", "diffusion, \u03c3\u00b2 = 4", exact[kCentre], kSide, kSide)};
  std::vector<HeatMap> whole = {panel("exact, whole mask", "256 \u00d7 256 entries", exact, kNodes, kNodes)};
  for (const std::int64_t walks : {4, 16, 64}) {
    options.walks.num_walks = walks;
    const GraphFeatures features = sample_features(graph, options);
    const at::Tensor f = at::tensor(feature_modulation(kernel, options), at::kDouble);
    const at::Tensor estimate = at::matmul(features.query.to_dense(f), features.key.to_dense(f).t());
    const double error = estimate.sub(exact).pow(2).sum().item<double>() / norm;
    const std::string title = fmt::format("{} walks", walks);
    patch.push_back(panel(title, fmt::format("error {:.3f}", error), estimate[kCentre], kSide, kSide));
    whole.push_back(panel(title, fmt::format("error {:.3f}", error), estimate, kNodes, kNodes));
  }
  write_heat_maps(
      {.title = "The mask on a 16 \u00d7 16 grid of patches",
       .panels = {patch, whole},
       .caption = "Above: the row of the patch in the middle; below: all rows. Colours by the square "
                  "root of an entry, on the scale of the exact mask. Error: |M_hat - M|\u00b2 / |M|\u00b2."},
      provenance(), command.out + "/mask");
}

Json time_table(const DemoCommand& command, bool print) {
  constexpr int kRepeats = 5;
  constexpr std::int64_t kSmallestSide = 64;
  Table table({"grid", "nodes", "seconds", "spread", "nonzeros per row", "peak memory"});
  Series measured{.label = "measured", .x = {}, .y = {}, .colour = series_colour(0)};
  Json rows = Json::array();
  WalkOptions options;
  options.num_walks = 16;
  options.max_hops = WalkOptions().max_hops;
  options.seed = command.run.seed;
  for (std::int64_t side = kSmallestSide; side <= command.largest; side *= 2) {
    const Graph graph = normalise(grid_graph({side, side}), Normalisation::symmetric);
    const std::int64_t nnz = sample_walk_features(graph, options).nnz();  // pays for fresh memory, not timed
    TimedWork work{[&] { sample_walk_features(graph, options); }, kRepeats};
    time_in_turns(c10::kCPU, {&work, 1});
    const Timing timing = summarise_times(work.seconds);
    const auto nodes = static_cast<double>(graph.num_nodes());
    const double per_row = static_cast<double>(nnz) / nodes, peak = static_cast<double>(peak_memory_bytes());
    table.add_row({fmt::format("{0} x {0}", side), format_count(nodes), fmt::format("{:.4f}", timing.median),
                   fmt::format("{:.4f}", timing.spread), fmt::format("{:.2f}", per_row), format_bytes(peak)});
    rows.push_back({{"nodes", graph.num_nodes()},
                    {"seconds_median", timing.median},
                    {"seconds_spread", timing.spread},
                    {"nonzeros_per_row", per_row},
                    {"peak_memory_bytes", peak}});
    measured.x.push_back(nodes);
    measured.y.push_back(timing.median);
  }
  const double slope = log_log_slope(measured.x, measured.y);
  if (print) {
    fmt::print("\n2. Time to sample graph random features, 16 walks, p_halt 0.5\n\n");
    table.print();
    fmt::print("\nlog-log slope {:.3f} (1 is linear); {}\n", slope, cpu_model());
  }
  Series linear{
      .label = "linear", .x = measured.x, .y = {}, .colour = kGrey, .markers = false, .dashed = true};
  for (const double nodes : measured.x) linear.y.push_back(measured.y.back() * nodes / measured.x.back());
  write_chart({.title = fmt::format("Time to sample graph random features, slope {:.2f}", slope),
               .x_axis = {"nodes of a square grid", true},
               .y_axis = {"time", true, "s"},
               .series = {linear, measured},
               .caption = fmt::format(
                   "{} walks per node, p_halt 0.5. Medians of {} runs after one that is not timed.",
                   options.num_walks, kRepeats)},
              provenance(), command.out + "/time");
  return {{"slope", slope}, {"rows", rows}};
}

void run_demo(const DemoCommand& command) {
  command.run.apply();
  check(command.trials >= 2, "--trials: a standard error needs at least 2 trials, got {}", command.trials);
  check(command.largest >= 64 && command.largest <= 16384,
        "--largest: expected a side from 64 to 16384, got {}", command.largest);
  std::error_code status;
  std::filesystem::create_directories(command.out, status);
  check(!status, "cannot create the directory '{}': {}", command.out, status.message());

  const bool print = command.run.prints_text();
  const Json errors = error_table(command, print);
  draw_masks(command);
  const Json times = time_table(command, print);
  const Json attention = demonstrate_attention({.largest = command.largest,
                                                .seed = command.run.seed,
                                                .stem = command.out + "/time-against-n",
                                                .print = print,
                                                .quiet = command.run.quiet});
  if (command.run.json) {
    Json files = Json::array();
    for (const char* name : {"error", "mask", "time", "time-against-n"}) {
      for (const char* extension : {"png", "svg"})
        files.push_back(fmt::format("{}/{}.{}", command.out, name, extension));
    }
    fmt::print("{}\n",
               Json{{"errors", errors}, {"times", times}, {"attention", attention}, {"files", files}}.dump());
  } else if (print) {
    fmt::print(
        "\nPictures, each also as .svg:\n"
        "  {0}/error.png           the table of errors\n"
        "  {0}/mask.png            the exact mask beside its estimates\n"
        "  {0}/time.png            time of features against the number of nodes\n"
        "  {0}/time-against-n.png  time of attention against the number of nodes\n",
        command.out);
  }
}

}  // namespace

void add_demo_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "demo", "Error table, pictures of the mask, time against size; takes about a minute");
  const auto command = std::make_shared<DemoCommand>();
  sub->add_option("--out", command->out, "Directory for the pictures")
      ->type_name("DIR")
      ->capture_default_str();
  sub->add_option("--trials", command->trials, "Sets of walks behind each number of the error table")
      ->capture_default_str();
  sub->add_option("--largest", command->largest, "Side in nodes of the largest square grid that is timed")
      ->capture_default_str();
  add_run_options(*sub, command->run);
  sub->footer("Example:\n  topomask demo --out demo-out");
  sub->callback([command] { run_demo(*command); });
}

}  // namespace topomask::cli
