// `topomask experiment`: studies of many training runs.
#include "commands/commands.h"

namespace topomask::cli {

void add_experiment_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("experiment", "Studies of many training runs");
  sub->require_subcommand(1);
  add_image_table_command(*sub);
}

}  // namespace topomask::cli
