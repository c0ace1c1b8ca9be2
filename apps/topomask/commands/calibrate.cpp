// `topomask calibrate`: the rates of this machine, for the planner.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/device_limits.h"
#include "bench/engine_case.h"
#include "bench/timing.h"
#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "options/options.h"
#include "progress.h"
#include "table.h"
#include "topomask/cost_model.h"
#include "topomask/device.h"
#include "topomask/graph_spec.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"

namespace topomask::cli {
namespace {

struct CalibrateCommand {
  RunOptions run;
  std::string device_word = "cpu";
  bool dry_run = false;
};

// Measures one device, one rate after the other. For each rate it times cases in which that rate matters
// most, and solves the planner's prediction for it with the rates known so far; the result is the geometric
// mean over a few cases.
class Calibrator {
 public:
  explicit Calibrator(c10::Device device) : device_(device), rates_(DeviceRates::built_in(device.type())) {
    shape_.device = device;
  }

  DeviceRates run(const std::function<void(std::int64_t, std::int64_t)>& progress) {
    using Step = void (Calibrator::*)();
    constexpr Step kSteps[] = {&Calibrator::copies, &Calibrator::starts, &Calibrator::products,
                               &Calibrator::mask_engine, &Calibrator::feature_engine};
    constexpr auto kCount = static_cast<std::int64_t>(std::size(kSteps));
    for (std::int64_t i = 0; i < kCount; ++i) {
      (this->*kSteps[i])();
      progress(i + 1, kCount);
    }
    return rates_;
  }

 private:
  Graph graph(const char* spec) const {
    return normalise(load_graph(spec).graph, Normalisation::symmetric).to(device_);
  }

  EngineCase grf(const char* spec, std::int64_t walks, bool learning = false,
                 double p_halt = WalkOptions().p_halt) const {
    FeatureOptions options;
    options.walks.num_walks = walks;
    options.walks.p_halt = p_halt;
    EngineCase made = grf_case(graph(spec), options, shape_, learning);
    made.mask->patterns();
    return made;
  }

  double seconds(const std::function<void()>& call) const {
    constexpr int kRepeats = 7;
    call();
    std::vector<TimedWork> work = {{call, kRepeats}};
    time_in_turns(device_, work);
    return summarise_times(work[0].seconds).median;
  }

  double threads() const { return device_.is_cpu() ? static_cast<double>(num_threads()) : 1; }

  double predicted(const EngineCase& one, Engine engine, double DeviceRates::*member, double rate) const {
    DeviceRates rates = rates_;
    rates.*member = rate;
    const AttentionPlan plan = plan_attention(one.mask->profile(), one.shape, one.options, rates);
    return std::find_if(plan.candidates.begin(), plan.candidates.end(),
                        [&](const PlanCandidate& c) { return c.engine == engine; })
        ->predicted_cost;
  }

  void fit(double DeviceRates::*member, Engine engine, const std::vector<EngineCase>& cases) {
    double logs = 0;
    for (const EngineCase& one : cases) {
      // At a rate of 1 the seconds are the work, and without a limit they are all the rest.
      const double rest = predicted(one, engine, member, 1e300);
      const double work = predicted(one, engine, member, 1) - rest, whole = seconds(one.pass(engine));
      logs += std::log(work / std::max(whole - rest, 0.1 * whole));
    }
    rates_.*member = std::exp(logs / static_cast<double>(cases.size()));
  }

  void copies() { rates_.bandwidth = measure_limits(device_, at::kFloat).bytes_per_second / threads(); }

  // A call with almost no work.
  void starts() {
    const EngineCase tiny = grf("path:32", 2);
    rates_.call = seconds(tiny.pass(Engine::mask));
  }

  void products() {
    fit(&DeviceRates::dense, Engine::dense, {grf("grid:24x24", 8), grf("grid:40x40", 8)});
    // Not measured separately: they scale with the matrix products.
    const double scale = rates_.dense / DeviceRates::built_in(device_.type()).dense;
    rates_.dense_half *= scale;
    rates_.feature_by_column_half *= scale;
    fit(&DeviceRates::factors, Engine::feature,
        {case_of(std::make_shared<const NoMask>(4096), shape_),
         case_of(std::make_shared<const NoMask>(32768), shape_)});
  }

  // In a cache; then rows from anywhere in a memory that no cache holds; then new values.
  void mask_engine() {
    fit(&DeviceRates::mask, Engine::mask, {grf("grid:40x40", 8), grf("torus:1500,8", 16)});
    if (device_.is_cpu()) fit(&DeviceRates::far_bandwidth, Engine::mask, {grf("er:20000,0.0004", 4)});
    // New values are timed separately. Where they matter, M is large and they are slow, so the slowest case
    // counts.
    double slowest = std::numeric_limits<double>::infinity();
    for (const EngineCase& one : {grf("grid:64x64", 32, true), grf("ba:4000,4", 16, true, 0.1)}) {
      const double whole = seconds([&] {
        const at::NoGradGuard no_grad;
        one.with_new_f()->entries();
      });
      const double work = predicted(one, Engine::mask, &DeviceRates::values, 1) -
                          predicted(one, Engine::mask, &DeviceRates::values, 1e300);
      slowest = std::min(slowest, work / whole);
    }
    rates_.values = slowest;
  }

  void feature_engine() {
    if (!device_.is_cpu()) return;  // bytes decide there
    fit(&DeviceRates::feature_by_column, Engine::feature, {grf("ba:2000,4", 8), grf("ba:4000,4", 16)});
    // A mask that can only multiply: the exact series.
    fit(&DeviceRates::feature, Engine::feature,
        {case_of(std::make_shared<const PowerSeriesMask>(graph("grid:40x40"), at::ones({4})), shape_)});
  }

  c10::Device device_;
  DeviceRates rates_;
  AttentionShape shape_;
};

void run_calibrate(const CalibrateCommand& command) {
  command.run.apply();
  const c10::Device device = parse_device(command.device_word);
  const std::string path = calibration_path(), key = calibration_key(device);
  check(command.dry_run || !path.empty(),
        "calibrate: TOPOMASK_CALIBRATION is off, so there is no file to write; see --dry-run");
  at::manual_seed(command.run.seed);
  Progress progress("calibrate", command.run.quiet);
  const auto start = Clock::now();
  const DeviceRates rates =
      Calibrator(device).run([&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  const double took = seconds_since(start);
  erase_progress_line();
  if (!command.dry_run) store_calibration(path, key, rates);
  const DeviceRates& built_in = DeviceRates::built_in(device.type());
  if (command.run.json) {
    nlohmann::ordered_json json = {{"device", key}, {"seconds", took}};
    json["file"] = command.dry_run ? nlohmann::ordered_json() : nlohmann::ordered_json(path);
    for (const RateField& field : rate_fields()) json["rates"][field.name] = rates.*field.member;
    fmt::print("{}\n", json.dump());
    return;
  }
  if (command.run.quiet) return;
  Table table({"rate", "here", "built in", "ratio"});
  for (const RateField& field : rate_fields()) {
    const double here = rates.*field.member, usual = built_in.*field.member;
    table.add_row({field.name, fmt::format("{:.3g}", here), fmt::format("{:.3g}", usual),
                   usual > 0 ? fmt::format("{:.2f}", here / usual) : ""});
  }
  table.print();
  fmt::print("{}{}, in {}\n", key, device.is_cpu() ? fmt::format(", one of {} thread(s)", num_threads()) : "",
             format_seconds(took));
  if (!command.dry_run) fmt::print("kept in {}\n", path);
}

}  // namespace

void add_calibrate_command(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("calibrate", "Measure the speed of this machine for the planner, and save it");
  const auto command = std::make_shared<CalibrateCommand>();
  add_device_option(*sub, command->device_word);
  sub->add_flag("--dry-run", command->dry_run, "Measure and print, but write no file");
  add_run_options(*sub, command->run);
  sub->footer(
      "Takes about ten seconds; run nothing else meanwhile. Later plans of attention on this device, from\n"
      "C++, Python and the shell, use these rates instead of the built-in ones: multiply-adds per second of "
      "each\n"
      "engine, bytes per second, and seconds per kernel, row, column and call.\n"
      "File: $TOPOMASK_CALIBRATION, else topomask/calibration.json in $XDG_CACHE_HOME or ~/.cache; only the\n"
      "version that wrote it reads it. TOPOMASK_CALIBRATION=off: plans use no file.\n"
      "Examples:\n"
      "  topomask calibrate\n"
      "  topomask calibrate --device cuda --json");
  sub->callback([command] { run_calibrate(*command); });
}

}  // namespace topomask::cli
