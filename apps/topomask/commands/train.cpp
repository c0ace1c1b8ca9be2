// `topomask train vit`: train a vision transformer, and go on where an earlier call stopped.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "commands/commands.h"
#include "commands/training_run.h"
#include "core/check.h"
#include "interrupt.h"
#include "options/options.h"
#include "table.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;

struct TrainCommand {
  RunOptions run;
  std::string config, out;
  bool resume = false, print_config = false;
  double time_limit = 0;
  std::shared_ptr<GivenSettings> given = std::make_shared<GivenSettings>();
};

// The settings of the run in the folder; options given now must agree with them.
VitSettings resumed_settings(const TrainCommand& command, const std::string& folder) {
  const std::string saved_path = (fs::path(folder) / kConfigFile).string();
  check(fs::exists(saved_path), "--resume: {} holds no run to go on with", folder);
  const VitSettings saved = VitSettings::from({}, saved_path);
  VitSettings now = saved;
  if (!command.config.empty()) now = VitSettings::from(*command.given, command.config);
  now.list().apply(*command.given);
  const std::string differs = difference(saved, now);
  check(differs.empty(), "--resume: {}; a run goes on with its own settings", differs);
  return now;
}

void print_result(const TrainCommand& command, const TrainingRun& run, const TrainingReport& report) {
  if (command.run.json) {
    nlohmann::ordered_json json = report.json;
    json["folder"] = run.folder;
    fmt::print("{}\n", json.dump());
    return;
  }
  if (!command.run.prints_text()) return;
  const TrainResult& result = report.result;
  Listing listing;
  listing.add("attention", attention_variant_name(run.settings.model.attention));
  listing.add("parameters", format_count(report.json["parameters"].get<double>()));
  listing.add("validation",
              fmt::format("accuracy {:.4f}, loss {:.4f}", result.last.accuracy, result.last.loss));
  listing.add("best", fmt::format("accuracy {:.4f} in epoch {}", result.best.accuracy, result.best_epoch));
  listing.add("trained for", format_seconds(result.seconds));
  listing.add("folder", run.folder);
  listing.print();
}

void run_train(const TrainCommand& command) {
  const auto start = std::chrono::steady_clock::now();
  command.run.apply();
  TrainingRun run;
  if (command.resume) {
    check(!command.out.empty(), "--resume: expected --out with the folder of the run");
    run.folder = command.out;
    run.settings = resumed_settings(command, run.folder);
  } else {
    run.settings = VitSettings::from(*command.given, command.config);
    run.folder = command.out.empty() ? run.settings.default_folder() : command.out;
  }
  run.resume = command.resume;
  run.prints_text = command.run.prints_text();
  run.quiet = command.run.quiet;
  run.label = "train";
  // All that can be wrong without the data is found before they are read.
  run.settings.train_options();
  if (command.print_config) {
    fmt::print("{}", run.settings.to_toml());
    return;
  }
  const bool used =
      fs::exists(fs::path(run.folder) / kLastCheckpoint) || fs::exists(fs::path(run.folder) / kResultFile);
  check(command.resume || !used, "{}: holds a run already; go on with it (--resume) or choose another --out",
        run.folder);
  const ImageData data = run.settings.open_data();
  check_vit_options(run.settings.task_options(data).model);  // before there is a folder
  const FolderLock lock(run.folder);
  check(lock.held(), "{}: another process is training there", run.folder);

  const InterruptScope interrupts;
  const auto out_of_time = [&] {
    return command.time_limit > 0 &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >
               command.time_limit;
  };
  run.should_stop = [&] { return InterruptScope::requested() || out_of_time(); };
  const TrainingReport report = run_training(run, data);
  if (report.result.outcome == TrainOutcome::stopped)
    throw Interrupted(fmt::format(
        "stopped at step {} of {}, all is saved; go on with: topomask train vit --resume --out {}",
        report.result.step, report.result.steps, run.folder));
  print_result(command, run, report);
}

void add_train_vit_command(CLI::App& train) {
  CLI::App* sub = train.add_subcommand("vit", "Train a vision transformer on images");
  const auto command = std::make_shared<TrainCommand>();
  sub->add_option("--config", command->config, "Settings from a TOML file; the command line wins over it")
      ->type_name("FILE");
  sub->add_option("--out", command->out, "Folder of the run (default: runs/vit-ATTENTION-seed-SEED)")
      ->type_name("DIR");
  sub->add_flag("--resume", command->resume, "Go on with the run in --out, to the same result");
  sub->add_flag(
      "--print-config", command->print_config,
      "Print all settings as a TOML file and do nothing else: what --config, the preset and the command line "
      "make together");
  sub->add_option("--time-limit", command->time_limit, "Save and stop after so many seconds; 0: never")
      ->capture_default_str();
  VitSettings defaults;
  defaults.list().add_options(*sub, command->given);
  add_output_options(*sub, command->run);
  sub->footer("Images (--data):\n" + image_data_forms() +
              "\nSettings not given come from --config, then from the preset. The folder gets config.toml, "
              "metrics.jsonl,\n"
              "last.safetensors, best.safetensors and, once finished, result.json.\n"
              "Examples:\n"
              "  topomask train vit --attention grf --epochs 10 --out runs/grf\n"
              "  topomask train vit --resume --out runs/grf\n"
              "  topomask train vit --config recipe.toml --data cifar10:data,train=1-3,val=4 --device cuda");
  sub->callback([command] { run_train(*command); });
}

}  // namespace

void add_train_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("train", "Train a model");
  sub->require_subcommand(1);
  add_train_vit_command(*sub);
}

}  // namespace topomask::cli
