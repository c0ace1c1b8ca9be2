// `topomask eval`: a trained model on its validation images or clips, or on others.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "options/options.h"
#include "table.h"
#include "topomask/runs.h"

namespace topomask::cli {
namespace {

struct EvalCommand {
  RunOptions run;
  std::string checkpoint, data, device;
  std::int64_t batch = 0;
};

void run_eval(const EvalCommand& command) {
  command.run.apply();
  const VitEvaluation evaluation =
      evaluate_vit(command.checkpoint, {command.data, command.device, command.batch});
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
  CLI::App* sub = app.add_subcommand("eval", "Accuracy of a trained model");
  const auto command = std::make_shared<EvalCommand>();
  sub->add_option("--checkpoint", command->checkpoint, "last.safetensors or best.safetensors of a run")
      ->type_name("FILE")
      ->required();
  sub->add_option("--data", command->data, "Other images than the run's; their validation part is used")
      ->type_name("SPEC");
  sub->add_option("--batch", command->batch, "Images in a batch (default: as in training)");
  sub->add_option("--device", command->device, "cpu, cuda or cuda:N (default: as in training)");
  add_output_options(*sub, command->run);
  sub->footer(
      "Images are normalised with the mean and deviation of the run's training images.\n"
      "Example:\n"
      "  topomask eval --checkpoint runs/grf/best.safetensors");
  sub->callback([command] { run_eval(*command); });
}

}  // namespace topomask::cli
