// `topomask train particles`: train a particle model of robot scenes, or resume where an earlier call
// stopped.
#include <fmt/format.h>

#include "commands/commands.h"
#include "options/step_table.h"
#include "table.h"
#include "topomask/particle_runs.h"
#include "train/json_number.h"
#include "train_session.h"

namespace topomask::cli {
namespace {

ParticleSettings chosen_particle_settings(const TrainFlags& flags) {
  if (!flags.wants_saved_settings()) return ParticleSettings::from(*flags.given, flags.config);
  // The run's settings, overridden by the command line; the library rejects what would change a result.
  const RunConfig config = read_run_config(flags.out);
  check_run_kind(config, flags.kind);
  ParticleSettings settings = ParticleSettings::from_toml_text(config.toml, config.path);
  list_settings(settings).apply(*flags.given);
  return settings;
}

void print_particle_result(const std::string& folder, const nlohmann::ordered_json& json,
                           const TrainResult& result) {
  Listing listing;
  listing.add("local layer", json["local"]);
  listing.add("parameters", format_count(json["parameters"].get<double>()));
  listing.add("validation", fmt::format("PSNR {:.2f} dB on {} windows", number_or_nan(json["psnr"]),
                                        json["rollout"]["windows"].get<std::int64_t>()));
  listing.add("trained for", format_seconds(result.seconds));
  listing.add("folder", folder);
  listing.print();
  fmt::print("\n{}", format_rollout_scores(json["rollout"]));
}

}  // namespace

void add_train_particles_command(CLI::App& train) {
  ParticleSettings defaults;
  const std::string footer =
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
      "  topomask train particles --data robot --ranks 2 --threads 1 --out runs/ranks";
  add_train_kind<ParticleSettings>(train,
                                   {"particles", "Train a particle model of robot scenes (HD-VPD)", "LOCAL",
                                    "--config and the command line", footer},
                                   list_settings(defaults), {},
                                   {chosen_particle_settings, train_particles, print_particle_result});
}

}  // namespace topomask::cli
