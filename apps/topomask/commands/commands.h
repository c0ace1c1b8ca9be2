// The subcommands: each has its own file and registers itself with one function.
#pragma once

#include <CLI/CLI.hpp>

namespace topomask::cli {

void add_graph_command(CLI::App& app);
void add_features_command(CLI::App& app);
void add_kernel_error_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_calibrate_command(CLI::App& app);
void add_partition_command(CLI::App& app);
void add_attend_command(CLI::App& app);
void add_flops_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_demo_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_experiment_command(CLI::App& app);
void add_report_command(CLI::App& app);
void add_simulate_command(CLI::App& app);
void add_render_command(CLI::App& app);
void add_show_command(CLI::App& app);
void add_rollout_command(CLI::App& app);

// Under `train`.
void add_train_particles_command(CLI::App& train);

// Under `bench`.
void add_bench_walks_command(CLI::App& bench);
void add_bench_attention_command(CLI::App& bench);
void add_bench_points_command(CLI::App& bench);
void add_bench_particles_command(CLI::App& bench);
void add_bench_planner_command(CLI::App& bench);
void add_bench_distributed_command(CLI::App& bench);
void add_bench_tokens_command(CLI::App& bench);

// Under `experiment`.
void add_image_table_command(CLI::App& experiment);
void add_video_table_command(CLI::App& experiment);
void add_particle_table_command(CLI::App& experiment);

}  // namespace topomask::cli
