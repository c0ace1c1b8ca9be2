// `topomask kernel-error`: how far the estimated mask is from the exact one, and with what bias.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "options/options.h"
#include "progress.h"
#include "table.h"
#include "topomask/theory.h"

namespace topomask::cli {
namespace {

struct KernelErrorCommand {
  RunOptions run;
  GraphOptions graph;
  WalkFlags walks;
  std::string walk_counts = "2,4,8,16";
  std::int64_t trials = 100;
  std::string kernel;
};

nlohmann::ordered_json to_json(const KernelError& row) {
  return {{"walks", row.walks},
          {"error", row.error},
          {"error_se", row.error_se},
          {"bias_diagonal", row.bias_diagonal},
          {"bias_diagonal_se", row.bias_diagonal_se},
          {"diagonal_ratio", row.diagonal_ratio},
          {"diagonal_ratio_se", row.diagonal_ratio_se},
          {"bias_off_diagonal", row.bias_off_diagonal},
          {"bias_off_diagonal_se", row.bias_off_diagonal_se},
          {"nonzeros_per_row", row.nonzeros_per_row}};
}

void print_table(const std::vector<KernelError>& rows) {
  Table table({"walks", "error", "+-", "diagonal bias", "+-", "diagonal ratio", "+-", "off-diagonal bias",
               "+-", "nonzeros per row"});
  for (const KernelError& row : rows) {
    table.add_row({fmt::format("{}", row.walks), fmt::format("{:.4g}", row.error),
                   fmt::format("{:.1g}", row.error_se), fmt::format("{:.3g}", row.bias_diagonal),
                   fmt::format("{:.1g}", row.bias_diagonal_se), fmt::format("{:.4g}", row.diagonal_ratio),
                   fmt::format("{:.1g}", row.diagonal_ratio_se), fmt::format("{:.3g}", row.bias_off_diagonal),
                   fmt::format("{:.1g}", row.bias_off_diagonal_se),
                   fmt::format("{:.4g}", row.nonzeros_per_row)});
  }
  table.print();
}

void run_kernel_error(const KernelErrorCommand& command) {
  command.run.apply();
  const NodeKernel kernel = NodeKernel::parse(command.kernel);
  // Every row's options are checked before the first one runs.
  std::vector<FeatureOptions> studies;
  for (const std::int64_t walks : parse_integers(command.walk_counts, "--walks")) {
    studies.push_back(command.walks.to_feature_options(walks, command.run.seed));
  }
  check(command.trials >= 2, "--trials: a standard error needs at least 2 trials, got {}", command.trials);
  const Graph graph = command.graph.load();

  std::vector<KernelError> rows;
  {
    Progress progress("trials", command.run.quiet);
    for (const FeatureOptions& options : studies) {
      const auto finished = static_cast<std::int64_t>(rows.size()) * command.trials;
      const std::int64_t all = static_cast<std::int64_t>(studies.size()) * command.trials;
      rows.push_back(measure_kernel_error(
          graph, kernel, options, command.trials,
          [&](std::int64_t done, std::int64_t) { progress.update(finished + done, all); }));
    }
  }
  if (command.run.json) {
    nlohmann::ordered_json json = {{"kernel", kernel.to_string()},
                                   {"coupling", word_of(studies.front().walks.coupling)},
                                   {"ensembles", word_of(studies.front().ensembles)},
                                   {"trials", command.trials},
                                   {"truncation_error", rows.front().truncation_error},
                                   {"results", nlohmann::ordered_json::array()}};
    for (const KernelError& row : rows) json["results"].push_back(to_json(row));
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    print_table(rows);
    fmt::print("{} trials of {}; error is |M_hat - M|^2 / |M|^2 (Frobenius), +- one standard error\n",
               command.trials, kernel.to_string());
    fmt::print("diagonal ratio is trace(M_hat) / trace(M): above 1 for shared ensembles\n");
    fmt::print("truncation error after {} hops: {:.2g}\n", studies.front().walks.max_hops,
               rows.front().truncation_error);
  }
}

}  // namespace

void add_kernel_error_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("kernel-error", "Measure error and bias of the estimated mask");
  const auto command = std::make_shared<KernelErrorCommand>();
  add_graph_options(*sub, command->graph, "karate");
  add_kernel_option(*sub, command->kernel);
  sub->add_option("--walks", command->walk_counts, "Walks per node; each number is a study")
      ->type_name("N,N,...")
      ->capture_default_str()
      ->group("Walks");
  add_walk_options(*sub, command->walks);
  sub->add_option("--trials", command->trials, "Independent repetitions of each study")
      ->capture_default_str();
  add_run_options(*sub, command->run);
  sub->footer(
      "The error is against the mask of the truncated series. The truncation error compares that mask\n"
      "with the one of the whole series.\n"
      "Examples:\n"
      "  topomask kernel-error --walks 2,4,8,16 --trials 1000\n"
      "  topomask kernel-error --graph grid:16x16 --coupling both --ensembles independent --json");
  sub->callback([command] { run_kernel_error(*command); });
}

}  // namespace topomask::cli
