// `topomask train particles`: train a particle model of robot scenes, or resume where an earlier call
// stopped.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "options/options.h"
#include "options/rank_options.h"
#include "options/setting_options.h"
#include "options/step_table.h"
#include "table.h"
#include "topomask/particle_runs.h"
#include "train_session.h"

namespace topomask::cli {
namespace {

struct ParticlesCommand {
  RunOptions run;
  std::string config, out;
  bool resume = false, print_config = false;
  double time_limit = 0;
  RankFlags ranks;
  std::shared_ptr<SettingValues> given = std::make_shared<SettingValues>();
};

ParticleSettings chosen_particle_settings(const ParticlesCommand& command) {
  if (!command.resume || !command.config.empty())
    return ParticleSettings::from(*command.given, command.config);
  // Those of the run, with what is given now on top; the library refuses what would change a result.
  const RunConfig config = read_run_config(command.out);
  check_run_kind(config, "particles");
  ParticleSettings settings = ParticleSettings::from_toml_text(config.toml, config.path);
  list_settings(settings).apply(*command.given);
  return settings;
}

void print_particle_result(const ParticlesCommand& command, const std::string& folder,
                           const ParticleRunResult& run) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(run.json);
  if (command.run.json) {
    json["folder"] = folder;
    fmt::print("{}\n", json.dump());
    return;
  }
  if (!command.run.prints_text()) return;
  Listing listing;
  listing.add("local layer", json["local"]);
  listing.add("parameters", format_count(json["parameters"].get<double>()));
  listing.add("validation", fmt::format("PSNR {:.2f} dB on {} windows", json["psnr"].get<double>(),
                                        json["rollout"]["windows"].get<std::int64_t>()));
  listing.add("trained for", format_seconds(run.training.seconds));
  listing.add("folder", folder);
  listing.print();
  fmt::print("\n{}", format_rollout_scores(json["rollout"]));
}

void print_particle_config(const ParticlesCommand& command) {
  const ParticleSettings settings = chosen_particle_settings(command);
  settings.train_options();  // checks them
  fmt::print("{}", settings.to_toml());
}

// On each rank, of which there may be one. The first has the folder, and speaks for all.
void run_particles(const ParticlesCommand& command, const RanksPtr& ranks) {
  const bool first = ranks->rank() == 0;
  TrainSession session(command.run.quiet || !first, first && command.run.prints_text(), command.time_limit);
  std::unique_ptr<RunFolder> folder;
  ParticleSettings settings;
  ranks->together("the folder of the run", [&] {
    if (!first) return;
    // The lock comes before all that takes time: a second process must hear of it at once.
    if (command.resume) folder = std::make_unique<RunFolder>(command.out, RunStart::resume);
    settings = chosen_particle_settings(command);
    if (command.resume) return;
    settings.train_options();
    folder = std::make_unique<RunFolder>(command.out.empty() ? settings.default_folder() : command.out,
                                         RunStart::fresh);
  });
  const ParticleRunResult run = train_particles(ranks, folder.get(), settings, session.callbacks());
  if (!first) return;
  if (run.training.outcome == TrainOutcome::stopped)
    throw Interrupted(fmt::format(
        "stopped at step {} of {}, all is saved; resume with: topomask train particles --resume --out {}",
        run.training.step, run.training.steps, folder->path()));
  print_particle_result(command, folder->path(), run);
}

}  // namespace

void add_train_particles_command(CLI::App& train) {
  const auto command = std::make_shared<ParticlesCommand>();
  CLI::App* sub = train.add_subcommand("particles", "Train a particle model of robot scenes (HD-VPD)");
  sub->add_option("--config", command->config, "Settings from a TOML file; the command line wins over it")
      ->type_name("FILE");
  sub->add_option("--out", command->out, "Folder of the run (default: runs/particles-LOCAL-seed-SEED)")
      ->type_name("DIR")
      ->check(not_empty);
  sub->add_flag("--resume", command->resume, "Resume the run in --out, to the same result");
  sub->add_flag("--print-config", command->print_config,
                "Print the settings that --config and the command line give, as a TOML file, and stop");
  sub->add_option("--time-limit", command->time_limit, "Save and stop after this many seconds; 0: never")
      ->capture_default_str();
  add_training_rank_options(*sub, command->ranks);
  ParticleSettings defaults;
  add_setting_options(*sub, list_settings(defaults), command->given);
  add_output_options(*sub, command->run);
  sub->footer(
      "The model sees two RGB-D frames and the robot's commands, and predicts the frames that follow. "
      "Defaults are "
      "the\n"
      "paper's; examples/recipes/hd-vpd-tiny.toml trains in minutes on two cores. The folder gets "
      "config.toml, "
      "metrics.jsonl,\n"
      "last.safetensors, best.safetensors and, once finished, result.json.\n"
      "Examples:\n"
      "  topomask simulate robot --episodes 4 --out robot\n"
      "  topomask train particles --config examples/recipes/hd-vpd-tiny.toml --data robot --local grf --out "
      "runs/grf\n"
      "  topomask train particles --resume --out runs/grf\n"
      "  topomask train particles --data robot --ranks 2 --threads 1 --out runs/ranks");
  sub->callback([command] {
    check(!command->resume || !command->out.empty(), "--resume: expected --out with the folder of the run");
    if (command->print_config) return print_particle_config(*command);
    if (command->ranks.wanted())
      return command->ranks.run(command->run, [&](const RanksPtr& ranks) { run_particles(*command, ranks); });
    command->run.apply();
    run_particles(*command, Ranks::alone());
  });
}

}  // namespace topomask::cli
