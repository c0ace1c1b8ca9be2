// `topomask experiment image-table` and `video-table`: variants of attention over several seeds
// (topomask/image_table.h).
#include "topomask/image_table.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/commands.h"
#include "core/check.h"
#include "interrupt.h"
#include "options/options.h"
#include "options/setting_options.h"
#include "progress.h"
#include "report/page.h"
#include "table.h"

namespace topomask::cli {
namespace {

struct TableCommand {
  RunOptions run;
  bool video = false;
  std::string config, out, variants, seeds = "0,1,2";
  double time_limit = 0;
  std::shared_ptr<SettingValues> given = std::make_shared<SettingValues>();
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
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

std::string percent(const nlohmann::ordered_json& part) {
  return part.is_null() ? "" : fmt::format("{:.2f}", 100 * part.get<double>());
}

std::string format_summary(const nlohmann::ordered_json& summary) {
  const std::string rate = summary["experiment"] == "video-table" ? "clips/s" : "images/s";
  Table table({"variant", "seeds", "accuracy %", "+-", "loss", "s/epoch", rate, "data %", "parameters"});
  for (const nlohmann::ordered_json& row : summary["variants"]) {
    table.add_row({row["variant"], std::to_string(row["seeds"].size()), percent(row["accuracy_mean"]),
                   percent(row["accuracy_se"]), fmt::format("{:.4f}", row["loss_mean"].get<double>()),
                   fmt::format("{:.2f}", row["epoch_seconds"].get<double>()),
                   format_count(std::round(row["images_per_second"].get<double>())),
                   percent(row["data_share"]), format_count(row["parameters"].get<double>())});
  }
  return table.to_string();
}

void run_table(const TableCommand& command) {
  const auto start = std::chrono::steady_clock::now();
  command.run.apply();
  ImageTable table;
  table.settings = VitSettings::from(*command.given, command.config, default_settings(command.video));
  check(table.settings.is_video() == command.video,
        "the settings are those of a {}: use 'topomask experiment {}'", table.settings.kind(),
        table.settings.is_video() ? "video-table" : "image-table");
  table.folder = command.out;
  table.variants = split(command.variants);
  table.seeds = chosen_seeds(command);
  check(!table.variants.empty() || command.variants.empty(),
        "--variants: expected names with commas between them");

  std::optional<InterruptScope> interrupts;
  const bool prints = command.run.prints_text();
  ImageTableCallbacks callbacks;
  callbacks.started = [&] { interrupts.emplace(); };
  callbacks.should_stop = [&] {
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return InterruptScope::requested() || (command.time_limit > 0 && passed > command.time_limit);
  };
  std::optional<Progress> progress;
  callbacks.training = [&](const ImageTableRun& run) {
    progress.emplace(fmt::format("{}/{} {} seed {}", run.number, run.total, run.variant, run.seed),
                     command.run.quiet);
    TrainCallbacks training;
    training.progress = [&](std::int64_t step, std::int64_t steps, const std::string& status) {
      progress->update(step, steps, status);
    };
    return training;
  };
  if (prints) {
    callbacks.finished = [&](const ImageTableRun& run, const TrainResult& result) {
      progress.reset();
      fmt::print("{:<18} seed {}  accuracy {:.4f}  loss {:.4f}  {:.1f} s\n", run.variant, run.seed,
                 result.last.accuracy, result.last.loss, result.seconds);
      std::fflush(stdout);
    };
    callbacks.in_use = [](const ImageTableRun& run) {
      fmt::print("{:<18} seed {}  left out: another process is training it\n", run.variant, run.seed);
    };
  }
  const ImageTableResult result = run_image_table(table, callbacks);
  progress.reset();
  const auto summary = nlohmann::ordered_json::parse(result.json);
  const std::string report = summary["runs"].empty() ? "" : write_report(command.out);
  if (command.run.json) {
    fmt::print("{}\n", result.json);
    if (result.in_use > 0)
      fmt::print(stderr, "topomask: left out {} of {} runs: another process is training them\n",
                 result.in_use, result.total);
  } else if (prints) {
    fmt::print("\n{}\n{} of {} runs are finished{}; {} has them all\n", format_summary(summary),
               result.finished, result.total,
               result.in_use > 0 ? fmt::format(", {} left to other processes", result.in_use) : std::string(),
               (std::filesystem::path(command.out) / "results.json").string());
    if (!report.empty()) fmt::print("{} shows them in a browser\n", report);
  }
  if (InterruptScope::requested())
    throw Interrupted("stopped, all is saved; the same command resumes where this one left off");
}

void add_table_command(CLI::App& experiment, bool video) {
  const std::string name = video ? "video-table" : "image-table";
  CLI::App* sub = experiment.add_subcommand(
      name, fmt::format("Compare variants of attention in a {}vision transformer over several seeds",
                        video ? "video " : ""));
  const auto command = std::make_shared<TableCommand>();
  command->video = video;
  command->out = "runs/" + name;
  sub->add_option(
         "--variants", command->variants,
         video ? fmt::format("Variants with commas between them (default: {}). Any --attention of 'train "
                             "vivit'; A+time "
                             "has A between moments too, joint-A has no factorised encoder, the last two are "
                             "controls without the order of the frames; NAME@KEY=VALUE changes a setting",
                             fmt::join(video_table_variants(), ","))
               : "Variants with commas between them: any --attention of 'train vit', or grf-walks-N for grf "
                 "with N "
                 "walks; NAME@KEY=VALUE changes a setting (default: those of the paper)")
      ->type_name("LIST");
  sub->add_option("--seeds", command->seeds, "Seeds to train with: 0,1,2 or 0-2")
      ->type_name("LIST")
      ->capture_default_str();
  sub->add_option("--config", command->config, "Settings from a TOML file; the command line wins over it")
      ->type_name("FILE");
  sub->add_option("--out", command->out, "Folder of the experiment")
      ->type_name("DIR")
      ->capture_default_str()
      ->check(not_empty);
  sub->add_option("--time-limit", command->time_limit, "Save and stop after this many seconds; 0: never")
      ->capture_default_str();
  VitSettings defaults = default_settings(video);
  const Settings settings = list_settings(defaults);
  std::set<std::string> left_out = {"attention", "seed"};
  if (video) {
    left_out.insert("frame-order");
  } else {
    left_out.merge(keys_of_clips(settings));
  }
  add_setting_options(*sub, settings, command->given, left_out);
  add_output_options(*sub, command->run);
  sub->footer(
      "Each run has a folder OUT/VARIANT/seed-S; finished runs are never run again and interrupted ones are "
      "resumed, so\n"
      "the same command may be given again and again, with other --variants and --seeds, and by several "
      "processes.\n"
      "OUT/results.json, OUT/report.html and the table hold what is finished so far: mean and standard error "
      "over seeds.\n"
      "Examples:\n" +
      fmt::format("  topomask experiment {0} --config recipe.toml --device cuda --time-limit 540\n"
                  "  topomask experiment {0} --variants linear,grf --seeds 0-2 --epochs 5 --out runs/quick",
                  name));
  sub->callback([command] { run_table(*command); });
}

}  // namespace

void add_image_table_command(CLI::App& experiment) {
  add_table_command(experiment, false);
}

void add_video_table_command(CLI::App& experiment) {
  add_table_command(experiment, true);
}

}  // namespace topomask::cli
