// `topomask experiment particle-table`: local layers of the Interlacer over several seeds
// (topomask/particle_table.h).
#include "topomask/particle_table.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "options/setting_options.h"
#include "options/table_options.h"
#include "report/page.h"
#include "table.h"

namespace topomask::cli {
namespace {

using Json = nlohmann::ordered_json;

// "0.812 ±0.004", or without the error of a single run.
std::string with_error(const Json& step, const std::string& key, double scale, int digits) {
  const Json plain = step.value(key, Json()),
             mean = plain.is_null() ? step.value(key + "_mean", Json()) : plain;
  if (mean.is_null()) return "-";
  const Json error = step.value(key + "_se", Json());
  const std::string text = fmt::format("{:.{}f}", scale * mean.get<double>(), digits);
  return error.is_null() ? text : text + fmt::format(" ±{:.{}f}", scale * error.get<double>(), digits);
}

// The first and the last step of every row.
std::string format_particle_summary(const Json& summary) {
  std::vector<std::string> header = {"variant", "seeds", "step"};
  for (const StepScore& score : step_scores()) header.push_back(score.column);
  header.push_back("ms/step");
  Table table(header);
  const auto add = [&](const std::string& name, const std::string& seeds, const Json& steps,
                       const std::string& time) {
    for (const std::size_t which : {std::size_t{0}, steps.size() - 1}) {
      const Json& step = steps[which];
      std::vector<std::string> cells = {name, seeds, std::to_string(step["step"].get<std::int64_t>())};
      for (const StepScore& score : step_scores())
        cells.push_back(with_error(step, score.name, score.shown_factor, score.digits));
      cells.push_back(time);
      table.add_row(cells);
      if (steps.size() == 1) break;
    }
  };
  for (const Json& row : summary["variants"])
    add(row["variant"], std::to_string(row["seeds"].size()), row["steps"],
        fmt::format("{:.1f}", 1000 * row["step_seconds"].get<double>()));
  for (const char* name : {"copy", "oracle"}) {
    if (summary.contains(name)) add(name, "", summary[name]["steps"], "");
  }
  return table.to_string();
}

void run_particle_table_command(const TableOptions& options) {
  TableSession session(options, [](const TrainResult& result) {
    return fmt::format("PSNR {:.2f} dB  loss {:.5f}", result.last.accuracy, result.last.loss);
  });
  options.run.apply();
  ParticleTable table;
  table.settings = ParticleSettings::from(*options.given, options.config);
  table.folder = options.out;
  table.variants = options.chosen_variants();
  table.seeds = options.chosen_seeds();
  const TableResult result = run_particle_table(table, session.callbacks());
  const Json summary = Json::parse(result.json);
  session.print_ending(result, format_particle_summary(summary),
                       summary["runs"].empty() ? "" : write_report(options.out));
}

}  // namespace

void add_particle_table_command(CLI::App& experiment) {
  CLI::App* sub = experiment.add_subcommand("particle-table",
                                            "Compare local layers of particle models over several seeds");
  const auto options = std::make_shared<TableOptions>();
  options->out = "runs/particle-table";
  add_table_options(
      *sub, *options,
      "Variants, separated by commas: any --local of 'train particles'; NAME@KEY=VALUE changes a "
      "setting (default: grf,mp,none)");
  ParticleSettings defaults;
  add_setting_options(*sub, list_settings(defaults), options->given, {"local", "seed"});
  add_output_options(*sub, options->run);
  sub->footer(
      "Each run has a folder OUT/VARIANT/seed-S; finished runs are never run again and interrupted ones are "
      "resumed, so\n"
      "the same command may be run again, with other --variants and --seeds, and by several processes at "
      "once.\n"
      "OUT/results.json, OUT/report.html and the table hold what is finished so far: mean and standard error "
      "over seeds, "
      "beside\n"
      "copying the last frame (copy) and the first particles carried by the true motion (oracle).\n"
      "Examples:\n"
      "  topomask experiment particle-table --config examples/recipes/hd-vpd-small.toml --data robot "
      "--device cuda "
      "--time-limit 540\n"
      "  topomask experiment particle-table --config examples/recipes/hd-vpd-tiny.toml --data robot "
      "--variants "
      "grf,grf@neighbours=6 --seeds 0");
  sub->callback([options] { run_particle_table_command(*options); });
}

}  // namespace topomask::cli
