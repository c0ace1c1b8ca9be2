// `topomask experiment`: studies of many training runs.
#include "commands/commands.h"

namespace topomask::cli {

void add_experiment_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("experiment", "Studies of many training runs");
  sub->require_subcommand(1);
  sub->footer(
      "Examples:\n"
      "  topomask experiment image-table --variants linear,grf --seeds 0-2 --epochs 5 --out runs/quick\n"
      "  topomask experiment video-table --variants softmax,softmax+grf --seeds 0-2 --epochs 5 --out "
      "runs/clips\n"
      "  topomask experiment particle-table --config examples/recipes/hd-vpd-tiny.toml --data robot --seeds "
      "0\n"
      "  topomask experiment image-table --help");
  add_image_table_command(*sub);
  add_video_table_command(*sub);
  add_particle_table_command(*sub);
}

}  // namespace topomask::cli
