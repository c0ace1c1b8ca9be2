// `topomask bench`: speed, with the peers measured in the same process.
#include "commands/commands.h"

namespace topomask::cli {

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed against peers in the same process");
  bench->require_subcommand(1);
  bench->footer(
      "Examples:\n"
      "  topomask bench walks --graph grid:181x181 --threads 1\n"
      "  topomask bench attention --graph grid:181x181 --walks 16\n"
      "  topomask bench points --device cuda --dtype bfloat16\n"
      "  topomask bench particles --device cuda\n"
      "  topomask bench planner --json\n"
      "  topomask bench distributed --graph grid:300x300 --ranks 2\n"
      "  topomask bench tokens --tokens 256,1024,4096 --device cuda");
  add_bench_walks_command(*bench);
  add_bench_attention_command(*bench);
  add_bench_points_command(*bench);
  add_bench_particles_command(*bench);
  add_bench_planner_command(*bench);
  add_bench_distributed_command(*bench);
  add_bench_tokens_command(*bench);
}

}  // namespace topomask::cli
