// `topomask experiment image-table`: the variants of Table 1 and both ablations of App. C over several seeds.
//
// One folder for each run; what is finished is never run again and what was interrupted goes on, so the work
// can be cut into slices of any length and spread over processes.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <memory>

#include "commands/commands.h"
#include "commands/training_run.h"
#include "core/check.h"
#include "core/suggest.h"
#include "interrupt.h"
#include "options/options.h"
#include "report/experiment_table.h"
#include "report/page.h"
#include "train/metrics.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWalksPrefix = "grf-walks-";
constexpr double kAblationHalt = 0.5;

struct TableCommand {
  RunOptions run;
  std::string config, out = "runs/image-table", variants, seeds = "0,1,2";
  double time_limit = 0;
  std::shared_ptr<GivenSettings> given = std::make_shared<GivenSettings>();
};

// A variant's name is that of its attention, or grf-walks-N.
VitSettings variant_settings(VitSettings settings, const std::string& variant, std::uint64_t seed) {
  settings.seed = seed;
  if (!variant.starts_with(kWalksPrefix)) {
    settings.model.attention = parse_attention_variant(variant);
    return settings;
  }
  const std::string number = variant.substr(std::string(kWalksPrefix).size());
  settings.model.attention = AttentionVariant::grf;
  settings.model.mask.num_walks = parse_integers(number, "--variants: " + variant).front();
  settings.model.mask.p_halt = kAblationHalt;
  return settings;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::vector<std::string> chosen_variants(const TableCommand& command) {
  if (command.variants.empty()) return table_variants();
  std::vector<std::string> words = split(command.variants), known = table_variants();
  for (const std::string& name : attention_variant_names()) known.push_back(name);
  for (const std::string& word : words) {
    const bool found =
        word.starts_with(kWalksPrefix) || std::find(known.begin(), known.end(), word) != known.end();
    check(found, "--variants: unknown value '{}'{}", word, did_you_mean(word, known));
  }
  check(!words.empty(), "--variants: expected names with commas between them");
  return words;
}

// "0,1,2" or "0-2".
std::vector<std::uint64_t> chosen_seeds(const TableCommand& command) {
  std::vector<std::uint64_t> seeds;
  for (const std::string& word : split(command.seeds)) {
    const std::size_t dash = word.find('-', 1);
    const std::int64_t first = parse_integers(word.substr(0, dash), "--seeds").front();
    const std::int64_t last =
        dash == std::string::npos ? first : parse_integers(word.substr(dash + 1), "--seeds").front();
    check(first >= 0 && last >= first && last - first < 1000,
          "--seeds: expected numbers like 0,1,2 or 0-2, got '{}'", word);
    for (std::int64_t seed = first; seed <= last; ++seed) seeds.push_back(static_cast<std::uint64_t>(seed));
  }
  check(!seeds.empty(), "--seeds: expected numbers like 0,1,2 or 0-2");
  return seeds;
}

// All slices of an experiment share their settings.
void agree_on_settings(const TableCommand& command, const VitSettings& settings) {
  const FolderLock lock(command.out, /*wait=*/true);
  const std::string path = (fs::path(command.out) / kConfigFile).string();
  if (fs::exists(path)) {
    const std::string differs = difference(VitSettings::from({}, path), settings);
    check(differs.empty(), "{}: {}; choose another --out for another experiment", path, differs);
  } else {
    write_text_atomically(path, settings.to_toml());
  }
}

// One process at a time, or one that looked earlier could replace the results of one that looked later.
nlohmann::ordered_json merge_results(const TableCommand& command, const VitSettings& settings) {
  const FolderLock lock(command.out, /*wait=*/true);
  nlohmann::ordered_json summary = {{"experiment", "image-table"}, {"data", settings.data}};
  summary.update(summarise_runs(find_finished_runs(command.out)));
  write_text_atomically((fs::path(command.out) / "results.json").string(), summary.dump(1) + "\n");
  return summary;
}

void run_table(const TableCommand& command) {
  const auto start = std::chrono::steady_clock::now();
  command.run.apply();
  const VitSettings base = VitSettings::from(*command.given, command.config);
  const std::vector<std::string> variants = chosen_variants(command);
  const std::vector<std::uint64_t> seeds = chosen_seeds(command);
  base.train_options();
  agree_on_settings(command, base);
  const ImageData data = base.open_data();

  const InterruptScope interrupts;
  const auto should_stop = [&] {
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return InterruptScope::requested() || (command.time_limit > 0 && passed > command.time_limit);
  };
  const bool prints = command.run.prints_text();
  const std::size_t total = variants.size() * seeds.size();
  std::size_t number = 0, finished = 0;
  bool stopped = false;
  // All variants of one seed before the next seed: a part of the work is a whole table already.
  for (const std::uint64_t seed : seeds) {
    for (const std::string& variant : variants) {
      ++number;
      const std::string folder = (fs::path(command.out) / variant / fmt::format("seed-{}", seed)).string();
      if (read_result(folder)) {
        ++finished;
        continue;
      }
      stopped = stopped || should_stop();
      if (stopped) continue;
      const FolderLock lock(folder);
      if (!lock.held()) {
        if (prints) fmt::print("{} seed {}: another process is at it\n", variant, seed);
        continue;
      }
      TrainingRun run;
      run.settings = variant_settings(base, variant, seed);
      run.folder = folder;
      run.resume = true;
      run.prints_text = false;
      run.quiet = command.run.quiet;
      run.label = fmt::format("{}/{} {} seed {}", number, total, variant, seed);
      run.should_stop = should_stop;
      const TrainingReport report = run_training(run, data);
      stopped = report.result.outcome == TrainOutcome::stopped;
      if (stopped) continue;
      ++finished;
      if (prints) {
        fmt::print("{:<18} seed {}  accuracy {:.4f}  loss {:.4f}  {:.1f} s\n", variant, seed,
                   report.result.last.accuracy, report.result.last.loss, report.result.seconds);
        std::fflush(stdout);
      }
      merge_results(command, base);
    }
  }
  const nlohmann::ordered_json summary = merge_results(command, base);
  const std::string report = summary["runs"].empty() ? "" : write_report(command.out);
  if (command.run.json) {
    fmt::print("{}\n", summary.dump());
  } else if (prints) {
    fmt::print("\n{}\n{} of {} runs are finished; {} has them all\n", format_summary(summary), finished,
               total, (fs::path(command.out) / "results.json").string());
    if (!report.empty()) fmt::print("{} shows them in a browser\n", report);
  }
  if (InterruptScope::requested())
    throw Interrupted("stopped, all is saved; the same command goes on where this one left off");
}

}  // namespace

void add_image_table_command(CLI::App& experiment) {
  CLI::App* sub = experiment.add_subcommand("image-table", "Variants of attention in a vision transformer");
  const auto command = std::make_shared<TableCommand>();
  sub->add_option(
         "--variants", command->variants,
         "Which, with commas between them: any --attention of 'train vit', or grf-walks-N (default: all of "
         "the paper)")
      ->type_name("LIST");
  sub->add_option("--seeds", command->seeds, "Which: 0,1,2 or 0-2")->type_name("LIST")->capture_default_str();
  sub->add_option("--config", command->config, "Settings from a TOML file; the command line wins over it")
      ->type_name("FILE");
  sub->add_option("--out", command->out, "Folder of the experiment")->type_name("DIR")->capture_default_str();
  sub->add_option("--time-limit", command->time_limit, "Save and stop after so many seconds; 0: never")
      ->capture_default_str();
  VitSettings defaults;
  defaults.list().add_options(*sub, command->given, {"attention", "seed"});
  add_output_options(*sub, command->run);
  sub->footer(
      "Each run has a folder OUT/VARIANT/seed-S; finished runs are never run again and interrupted ones go "
      "on, so\n"
      "the same command may be given again and again, with other --variants and --seeds, and by several "
      "processes.\n"
      "OUT/results.json, OUT/report.html and the table hold what is finished so far: mean and standard error "
      "over seeds.\n"
      "Examples:\n"
      "  topomask experiment image-table --config recipe.toml --device cuda --time-limit 540\n"
      "  topomask experiment image-table --variants linear,grf --seeds 0-2 --epochs 5 --out runs/quick");
  sub->callback([command] { run_table(*command); });
}

}  // namespace topomask::cli
