// `topomask train vit` and `train vivit`: train a vision transformer on images or clips, or resume where an
// earlier call stopped.
#include <fmt/format.h>

#include "commands/commands.h"
#include "core/check.h"
#include "options/setting_options.h"
#include "table.h"
#include "topomask/runs.h"
#include "train_session.h"

namespace topomask::cli {
namespace {

VitSettings chosen_settings(const TrainFlags& flags) {
  const bool video = flags.kind == "vivit";
  VitSettings settings;
  if (flags.wants_saved_settings()) {
    // The run's settings, overridden by the command line; the library rejects what would change a result.
    settings = read_run_settings(flags.out);
    list_settings(settings).apply(*flags.given);
    check_encoder_settings(settings.model.encoder, *flags.given);
  } else {
    settings = VitSettings::from(*flags.given, flags.config, default_settings(video));
  }
  check(settings.is_video() == video, "the settings are those of a {} (encoder {}): use 'topomask train {}'",
        settings.kind(), word_of(settings.model.encoder), settings.kind());
  return settings;
}

void print_result(const std::string& folder, const nlohmann::ordered_json& json, const TrainResult& result) {
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

void add_train_vit_command(CLI::App& train, bool video) {
  VitSettings defaults = default_settings(video);
  const Settings settings = list_settings(defaults);
  const std::string footer =
      (video ? "Clips" : "Images") + std::string(" (--data):\n") + image_data_forms(video) +
      "\nSettings not given come from --config, then from the preset. The folder gets config.toml, "
      "metrics.jsonl,\n"
      "last.safetensors, best.safetensors and, once finished, result.json.\n"
      "Ranks share every batch: --batch is that of all together, and the result is that of one process up "
      "to\n"
      "rounding. The first rank writes the folder. A run may be resumed with another number of ranks.\n"
      "Examples:\n" +
      (video ? "  topomask train vivit --attention softmax+grf --epochs 10 --out runs/clips\n"
               "  topomask train vivit --resume --out runs/clips\n"
               "  topomask train vivit --config recipe.toml --data video-folder:data --device cuda"
             : "  topomask train vit --attention grf --epochs 10 --out runs/grf\n"
               "  topomask train vit --resume --out runs/grf\n"
               "  topomask train vit --attention grf --ranks 2 --threads 1 --out runs/ranks\n"
               "  torchrun --nproc-per-node 2 --no-python -- topomask train vit --out runs/ranks\n"
               "  topomask train vit --config recipe.toml --data cifar10:data,train=1-3,val=4 --device cuda");
  add_train_kind<VitSettings>(
      train,
      {defaults.kind(),
       video ? "Train a video vision transformer on clips" : "Train a vision transformer on images",
       "ATTENTION", "--config, the preset and the command line", footer},
      settings, video ? std::set<std::string>() : keys_of_clips(settings),
      {chosen_settings, train_vit, print_result});
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
