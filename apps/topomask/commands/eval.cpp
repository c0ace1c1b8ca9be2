// `topomask eval`: a trained model on its validation images, clips or episodes, or on others.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/commands.h"
#include "core/check.h"
#include "options/options.h"
#include "options/step_table.h"
#include "progress.h"
#include "table.h"
#include "topomask/particle_runs.h"

namespace topomask::cli {
namespace {

struct EvalCommand {
  RunOptions run;
  std::string checkpoint, data, device;
  std::optional<std::int64_t> batch, windows, rollout;
};

void check_given(const std::optional<std::int64_t>& number, const char* option) {
  check(!number || *number >= 1, "{}: expected 1 or more, got {}", option, number.value_or(0));
}

void run_particle_eval(const EvalCommand& command) {
  check(!command.batch, "--batch: particle models are judged one window at a time");
  TrainedParticles model(command.checkpoint, {command.data, command.device, command.windows.value_or(0),
                                              command.rollout.value_or(0)});
  Progress progress("eval", command.run.quiet);
  const RolloutScores result =
      model.judge([&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  const auto scores = nlohmann::ordered_json::parse(rollout_scores_json(result));
  const std::string local(word_of(model.settings().task.model.interlacer.local));
  if (command.run.json) {
    const nlohmann::ordered_json json = {{"checkpoint", command.checkpoint},
                                         {"local", local},
                                         {"data", model.settings().data},
                                         {"rollout", scores}};
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    Listing listing;
    listing.add("local layer", local);
    listing.add("windows", fmt::format("{} of {}", result.windows, model.settings().data));
    listing.add("step of one window", format_seconds(result.step_seconds));
    listing.add("nearest particle", fmt::format("{:.1f} mm, median", 1000 * result.spacing.nearest));
    if (!std::isnan(result.spacing.contact))
      listing.add("in contact", fmt::format("{:.0f} % of object and grain particles have another body among "
                                            "their neighbours",
                                            100 * result.spacing.contact));
    listing.print();
    fmt::print("\n{}", format_rollout_scores(scores));
  }
}

void run_eval(const EvalCommand& command) {
  command.run.apply();
  check_given(command.batch, "--batch");
  check_given(command.windows, "--windows");
  check_given(command.rollout, "--rollout");
  if (read_checkpoint_config(command.checkpoint).kind == "particles") return run_particle_eval(command);
  check(!command.windows && !command.rollout, "--windows and --rollout are for particle models");
  const VitEvaluation evaluation =
      evaluate_vit(command.checkpoint, {command.data, command.device, command.batch.value_or(0)});
  const VitSettings& settings = evaluation.settings;
  const Evaluation& result = evaluation.result;
  if (command.run.json) {
    const nlohmann::ordered_json json = {{"checkpoint", command.checkpoint},
                                         {"attention", attention_variant_name(settings.model.attention)},
                                         {"data", settings.data},
                                         {"images", result.count},
                                         {"accuracy", result.accuracy},
                                         {"loss", result.loss}};
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    Listing listing;
    listing.add("attention", attention_variant_name(settings.model.attention));
    listing.add(settings.is_video() ? "clips" : "images",
                fmt::format("{} of {}", format_count(static_cast<double>(result.count)), settings.data));
    listing.add("accuracy", fmt::format("{:.4f}", result.accuracy));
    listing.add("loss", fmt::format("{:.4f}", result.loss));
    listing.print();
  }
}

}  // namespace

void add_eval_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("eval", "Evaluate a trained model");
  const auto command = std::make_shared<EvalCommand>();
  sub->add_option("--checkpoint", command->checkpoint, "last.safetensors or best.safetensors of a run")
      ->type_name("FILE")
      ->required();
  sub->add_option(
         "--data", command->data,
         "Other data than the run's: the validation part of images or clips, or all episodes of a folder")
      ->type_name("SPEC");
  sub->add_option("--batch", command->batch, "Images or clips per batch (default: as in training)");
  sub->add_option("--windows", command->windows,
                  "Particle models: windows of the validation episodes (default: as in training)");
  sub->add_option("--rollout", command->rollout,
                  "Particle models: frames to predict in each window (default: as in training)");
  sub->add_option("--device", command->device, "Device: cpu, cuda or cuda:N (default: as in training)");
  add_output_options(*sub, command->run);
  sub->footer(
      "Images are normalised with the mean and standard deviation of the run's training images.\n"
      "Example:\n"
      "  topomask eval --checkpoint runs/grf/best.safetensors\n"
      "  topomask eval --checkpoint runs/particles/best.safetensors --rollout 12");
  sub->callback([command] { run_eval(*command); });
}

}  // namespace topomask::cli
