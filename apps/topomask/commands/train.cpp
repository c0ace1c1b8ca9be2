// `topomask train vit` and `train vivit`: train a vision transformer on images or clips, or resume where an
// earlier call stopped.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "options/options.h"
#include "options/setting_options.h"
#include "table.h"
#include "topomask/runs.h"
#include "train_session.h"

namespace topomask::cli {
namespace {

struct TrainCommand {
  bool video = false;  // vivit
  RunOptions run;
  std::string config, out;
  bool resume = false, print_config = false;
  double time_limit = 0;
  std::shared_ptr<SettingValues> given = std::make_shared<SettingValues>();
};

VitSettings chosen_settings(const TrainCommand& command) {
  VitSettings settings;
  if (command.resume && command.config.empty()) {
    // Those of the run, with what is given now on top; the library refuses what would change a result.
    settings = read_run_settings(command.out);
    list_settings(settings).apply(*command.given);
  } else {
    settings = VitSettings::from(*command.given, command.config, default_settings(command.video));
  }
  check(settings.is_video() == command.video, "the settings are those of a {}: use 'topomask train {}'",
        settings.kind(), settings.kind());
  return settings;
}

void print_result(const TrainCommand& command, const std::string& folder, const VitRunResult& run) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(run.json);
  if (command.run.json) {
    json["folder"] = folder;
    fmt::print("{}\n", json.dump());
    return;
  }
  if (!command.run.prints_text()) return;
  const TrainResult& result = run.training;
  Listing listing;
  listing.add("attention", json["attention"]);
  listing.add("parameters", format_count(json["parameters"].get<double>()));
  listing.add("validation",
              fmt::format("accuracy {:.4f}, loss {:.4f}", result.last.accuracy, result.last.loss));
  listing.add("best", fmt::format("accuracy {:.4f} in epoch {}", result.best.accuracy, result.best_epoch));
  listing.add("trained for", format_seconds(result.seconds));
  listing.add("folder", folder);
  listing.print();
}

void run_train(const TrainCommand& command) {
  TrainSession session(command.run.quiet, command.run.prints_text(), command.time_limit);
  command.run.apply();
  check(!command.resume || !command.out.empty(), "--resume: expected --out with the folder of the run");
  if (command.print_config) {
    const VitSettings settings = chosen_settings(command);
    settings.train_options();  // checks them
    fmt::print("{}", settings.to_toml());
    return;
  }
  // The lock comes before all that takes time: a second process must hear of it at once.
  std::unique_ptr<RunFolder> folder;
  if (command.resume) folder = std::make_unique<RunFolder>(command.out, RunStart::resume);
  const VitSettings settings = chosen_settings(command);
  if (!command.resume) {
    settings.train_options();
    folder = std::make_unique<RunFolder>(command.out.empty() ? settings.default_folder() : command.out,
                                         RunStart::fresh);
  }

  const VitRunResult run = train_vit(*folder, settings, session.callbacks());
  if (run.training.outcome == TrainOutcome::stopped)
    throw Interrupted(fmt::format(
        "stopped at step {} of {}, all is saved; resume with: topomask train {} --resume --out {}",
        run.training.step, run.training.steps, settings.kind(), folder->path()));
  print_result(command, folder->path(), run);
}

void add_train_vit_command(CLI::App& train, bool video) {
  const auto command = std::make_shared<TrainCommand>();
  command->video = video;
  VitSettings defaults = default_settings(video);
  CLI::App* sub = train.add_subcommand(defaults.kind(), video ? "Train a video vision transformer on clips"
                                                              : "Train a vision transformer on images");
  sub->add_option("--config", command->config, "Settings from a TOML file; the command line wins over it")
      ->type_name("FILE");
  sub->add_option("--out", command->out,
                  fmt::format("Folder of the run (default: runs/{}-ATTENTION-seed-SEED)", defaults.kind()))
      ->type_name("DIR")
      ->check(not_empty);
  sub->add_flag("--resume", command->resume, "Resume the run in --out, to the same result");
  sub->add_flag(
      "--print-config", command->print_config,
      "Print the settings that --config, the preset and the command line give, as a TOML file, and stop");
  sub->add_option("--time-limit", command->time_limit, "Save and stop after this many seconds; 0: never")
      ->capture_default_str();
  const Settings settings = list_settings(defaults);
  add_setting_options(*sub, settings, command->given,
                      video ? std::set<std::string>() : keys_of_clips(settings));
  add_output_options(*sub, command->run);
  sub->footer(
      (video ? "Clips" : "Images") + std::string(" (--data):\n") + image_data_forms(video) +
      "\nSettings not given come from --config, then from the preset. The folder gets config.toml, "
      "metrics.jsonl,\n"
      "last.safetensors, best.safetensors and, once finished, result.json.\n"
      "Examples:\n" +
      (video
           ? "  topomask train vivit --attention softmax+grf --epochs 10 --out runs/clips\n"
             "  topomask train vivit --resume --out runs/clips\n"
             "  topomask train vivit --config recipe.toml --data video-folder:data --device cuda"
           : "  topomask train vit --attention grf --epochs 10 --out runs/grf\n"
             "  topomask train vit --resume --out runs/grf\n"
             "  topomask train vit --config recipe.toml --data cifar10:data,train=1-3,val=4 --device cuda"));
  sub->callback([command] { run_train(*command); });
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("train", "Train a model");
  sub->require_subcommand(1);
  sub->footer(
      "Examples:\n"
      "  topomask train vit --attention grf --epochs 10 --out runs/grf\n"
      "  topomask train vivit --attention softmax+grf --epochs 10 --out runs/clips\n"
      "  topomask train particles --config examples/recipes/hd-vpd-tiny.toml --data robot --out "
      "runs/particles\n"
      "  topomask train vit --help");
  add_train_vit_command(*sub, false);
  add_train_vit_command(*sub, true);
  add_train_particles_command(*sub);
}

}  // namespace topomask::cli
