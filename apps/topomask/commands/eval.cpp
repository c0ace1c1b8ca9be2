// `topomask eval`: a trained model on its validation images, or on others.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "options/options.h"
#include "options/vit_settings.h"
#include "table.h"
#include "topomask/safetensors.h"
#include "topomask/train.h"

namespace topomask::cli {
namespace {

struct EvalCommand {
  RunOptions run;
  std::string checkpoint, data, device;
  std::int64_t batch = 0;
};

const std::string& metadata(const SafetensorsFile& file, const std::string& path, const char* key) {
  const auto found = file.metadata.find(key);
  check(found != file.metadata.end(), "{}: is no checkpoint of 'topomask train' (its metadata has no '{}')",
        path, key);
  return found->second;
}

// The averaged weights, where training kept them: they are what it evaluated.
std::string weight_prefix(const SafetensorsFile& file) {
  for (const auto& entry : file.tensors) {
    if (entry.first.starts_with("ema.")) return "ema.";
  }
  return "";
}

void run_eval(const EvalCommand& command) {
  command.run.apply();
  const SafetensorsFile file = read_safetensors(command.checkpoint);
  VitSettings settings =
      VitSettings::from_toml_text(metadata(file, command.checkpoint, kDescribedSettings), command.checkpoint);
  if (!command.data.empty()) settings.data = command.data;
  if (!command.device.empty()) settings.device = command.device;
  if (command.batch > 0) settings.batch = command.batch;

  ImageDataOptions data_options;
  const auto normalisation = nlohmann::json::parse(metadata(file, command.checkpoint, "normalisation"));
  data_options.mean = normalisation.at("mean").get<std::vector<double>>();
  data_options.stddev = normalisation.at("stddev").get<std::vector<double>>();
  data_options.skip_bad = settings.skip_bad;
  const ImageData data = open_image_data(settings.data, data_options);
  ImageClassification task(data, settings.task_options(data));
  load_parameters(file, command.checkpoint, weight_prefix(file), task.parameters());
  const Evaluation result = evaluate(task, settings.train_options());

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
    listing.add("images",
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
  sub->add_option("--data", command->data, "Images, if others than the run's: their validation part")
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
