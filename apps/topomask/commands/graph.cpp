// `topomask graph`: what a graph looks like, and whether the concentration theorem covers it.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "options/options.h"
#include "table.h"
#include "topomask/theory.h"

namespace topomask::cli {
namespace {

struct GraphCommand {
  RunOptions run;
  GraphOptions graph;
  std::string kernel;
  double p_halt = WalkOptions().p_halt;
  std::optional<int> max_hops;
};

double constant_c(const GraphCommand& command, const Graph& graph, const NodeKernel& kernel) {
  if (!command.max_hops) return concentration_constant(graph, kernel, command.p_halt);
  check(*command.max_hops >= 0, "--max-hops: expected a number from 0, got {}", *command.max_hops);
  return concentration_constant(graph, kernel.modulation_up_to(*command.max_hops), command.p_halt);
}

// What makes c finite: a smaller p_halt if that is enough, another normalisation if that is, a truncation
// always.
std::string advice(const GraphCommand& command, const Graph& raw, const Graph& graph,
                   const NodeKernel& kernel) {
  const double growth = load_growth(graph, command.p_halt), radius = kernel.modulation_radius();
  std::vector<std::string> remedies;
  const double largest_p_halt = 1 - load_growth(graph, 0) / radius;
  if (largest_p_halt > 0.01) {
    remedies.push_back(fmt::format("--p-halt below {:.2f}", std::floor(100 * largest_p_halt) / 100));
  }
  if (command.graph.normalisation != Normalisation::max_degree &&
      std::isfinite(
          concentration_constant(normalise(raw, Normalisation::max_degree), kernel, command.p_halt))) {
    remedies.emplace_back("--normalise max-degree");
  }
  if (command.p_halt < 1) remedies.emplace_back("a truncated series (--max-hops)");
  return fmt::format(
      "infinite, as one step can multiply a walk's load by {:.4g} (the kernel's series allows {:.4g}): the "
      "theorem "
      "gives no number of walks; `topomask plan` measures one, and c is finite with {}",
      growth, radius, fmt::join(remedies, " or "));
}

void run_graph(const GraphCommand& command) {
  command.run.apply();
  check(command.p_halt >= 0 && command.p_halt <= 1, "--p-halt: expected a number in [0, 1], got {}",
        command.p_halt);
  const NodeKernel kernel = NodeKernel::parse(command.kernel);
  const Graph raw = command.graph.load_raw();
  const Graph graph = normalise(raw, command.graph.normalisation);
  const GraphSummary summary = summarise(raw);
  const double c = constant_c(command, graph, kernel);
  const std::string c_advice = std::isfinite(c) ? "" : advice(command, raw, graph, kernel);

  if (command.run.json) {
    nlohmann::ordered_json json = {
        {"nodes", summary.nodes},
        {"edges", summary.edges},
        {"directed", summary.directed},
        {"self_loops", summary.self_loops},
        {"isolated", summary.isolated},
        {"components", summary.components},
        {"degree", {{"min", summary.degree_min}, {"mean", summary.degree_mean}, {"max", summary.degree_max}}},
        {"weight", {{"min", summary.weight_min}, {"max", summary.weight_max}}},
        {"c", c}};  // an infinite number becomes null
    if (!c_advice.empty()) json["c_advice"] = c_advice;
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    Listing listing;
    listing.add("nodes", format_count(static_cast<double>(summary.nodes)));
    listing.add("edges", fmt::format("{} ({})", format_count(static_cast<double>(summary.edges)),
                                     summary.directed ? "directed" : "undirected"));
    listing.add("self-loops", format_count(static_cast<double>(summary.self_loops)));
    listing.add("isolated nodes", format_count(static_cast<double>(summary.isolated)));
    listing.add("components", format_count(static_cast<double>(summary.components)));
    listing.add("degree", fmt::format("{} to {}, mean {:.4g}", summary.degree_min, summary.degree_max,
                                      summary.degree_mean));
    listing.add("weight", fmt::format("{:.6g} to {:.6g}", summary.weight_min, summary.weight_max));
    listing.add("c", c_advice.empty() ? fmt::format("{:.6g}", c) : c_advice);
    listing.print();
  }
}

}  // namespace

void add_graph_command(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("graph", "Describe a graph and the constant c of the concentration theorem");
  const auto command = std::make_shared<GraphCommand>();
  add_graph_options(*sub, command->graph);
  add_kernel_option(*sub, command->kernel);
  sub->add_option("--p-halt", command->p_halt, "Probability that a walk halts at each node, for c")
      ->capture_default_str();
  sub->add_option("--max-hops", command->max_hops,
                  "Truncate the kernel's series after this many hops, which makes c finite");
  add_run_options(*sub, command->run);
  sub->footer("Graphs:\n" + graph_forms_text() + "Kernels:\n" + kernel_forms_text() +
              "Degrees and weights are those of the graph as read; c is that of the normalised graph.\n"
              "Examples:\n"
              "  topomask graph --graph karate\n"
              "  topomask graph --graph mesh.ply --json\n"
              "  topomask graph --graph edges.csv.gz --duplicates sum --components drop --out-ids ids.tsv\n"
              "  topomask graph --graph ba:10000,4 --normalise max-degree --p-halt 0.1");
  sub->callback([command] { run_graph(*command); });
}

}  // namespace topomask::cli
