// `topomask experiment image-table` and `video-table`: variants of attention over several seeds
// (topomask/image_table.h).
#include "topomask/image_table.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "options/setting_options.h"
#include "options/table_options.h"
#include "report/page.h"
#include "table.h"
#include "train/json_number.h"

namespace topomask::cli {
namespace {

struct TableCommand : TableOptions {
  bool video = false;
};

std::string percent(const nlohmann::ordered_json& part) {
  return part.is_null() ? "" : fmt::format("{:.2f}", 100 * part.get<double>());
}

std::string format_summary(const nlohmann::ordered_json& summary) {
  const std::string rate = summary["experiment"] == "video-table" ? "clips/s" : "images/s";
  Table table({"variant", "seeds", "accuracy %", "+-", "loss", "s/epoch", rate, "data %", "parameters"});
  for (const nlohmann::ordered_json& row : summary["variants"]) {
    table.add_row({row["variant"], std::to_string(row["seeds"].size()), percent(row["accuracy_mean"]),
                   percent(row["accuracy_se"]), fmt::format("{:.4f}", number_or_nan(row["loss_mean"])),
                   fmt::format("{:.2f}", row["epoch_seconds"].get<double>()),
                   format_count(std::round(row["images_per_second"].get<double>())),
                   percent(row["data_share"]), format_count(row["parameters"].get<double>())});
  }
  return table.to_string();
}

void run_table(const TableCommand& command) {
  TableSession session(command, [](const TrainResult& result) {
    return fmt::format("accuracy {:.4f}  loss {:.4f}", result.last.accuracy, result.last.loss);
  });
  command.run.apply();
  ImageTable table;
  table.settings = VitSettings::from(*command.given, command.config, default_settings(command.video));
  check(table.settings.is_video() == command.video,
        "the settings are those of a {}: use 'topomask experiment {}'", table.settings.kind(),
        table.settings.is_video() ? "video-table" : "image-table");
  table.folder = command.out;
  table.variants = command.chosen_variants();
  table.seeds = command.chosen_seeds();
  const TableResult result = run_image_table(table, session.callbacks());
  const auto summary = nlohmann::ordered_json::parse(result.json);
  session.print_ending(result, format_summary(summary),
                       summary["runs"].empty() ? "" : write_report(command.out));
}

void add_table_command(CLI::App& experiment, bool video) {
  const std::string name = video ? "video-table" : "image-table";
  CLI::App* sub = experiment.add_subcommand(
      name, fmt::format("Compare variants of attention in a {}vision transformer over several seeds",
                        video ? "video " : ""));
  const auto command = std::make_shared<TableCommand>();
  command->video = video;
  command->out = "runs/" + name;
  add_table_options(
      *sub, *command,
      video ? fmt::format("Variants, separated by commas (default: {}): any --attention of 'train vivit'. "
                          "A+time uses A between time steps too, joint-A uses the joint encoder, the last "
                          "two are controls without frame order; NAME@KEY=VALUE changes a setting",
                          fmt::join(video_table_variants(), ","))
            : "Variants, separated by commas: any --attention of 'train vit', or grf-walks-N for grf "
              "with N "
              "walks; NAME@KEY=VALUE changes a setting (default: the variants of the paper)");
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
      "the same command may be run again, with other --variants and --seeds, and by several processes at "
      "once.\n"
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
