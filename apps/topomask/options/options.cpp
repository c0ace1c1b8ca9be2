#include "options/options.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/check.h"
#include "core/numbers.h"
#include "core/parallel.h"
#include "options/choices.h"
#include "topomask/graph_io.h"

namespace topomask::cli {
namespace {

constexpr const char* kGraphGroup = "Graph";
constexpr const char* kWalkGroup = "Walks";

}  // namespace

void RunOptions::apply() const {
  if (threads) set_num_threads(*threads);
}

void add_run_options(CLI::App& command, RunOptions& options) {
  // Not as a number of CLI11's, which takes -1 for 2^64 - 1.
  command
      .add_option_function<std::string>(
          "--seed", [&options](const std::string& text) { options.seed = parse_seed(text, "--seed"); },
          "Random seed; fixes everything random")
      ->type_name("UINT")
      ->default_str(std::to_string(options.seed));
  add_output_options(command, options);
  command.get_option("--threads")
      ->description("Number of threads (default: all cores); does not change the results");
}

void add_output_options(CLI::App& command, RunOptions& options) {
  command.add_option("--threads", options.threads, "Number of threads (default: all cores)");
  command.add_flag("--json", options.json, "Print one JSON object instead of a table");
  command.add_flag("--quiet", options.quiet, "Print only errors and warnings (and JSON, if asked for)");
}

void check_another_file(const char* flag, const std::string& path, const char* other_flag,
                        const std::string& other_path) {
  std::error_code unknown;  // the place of a file in a loop of links, say: then the names decide
  const auto place = [&](const std::string& file) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(file, unknown), unknown);
  };
  const bool is_device = std::filesystem::exists(path, unknown) &&
                         !std::filesystem::is_regular_file(path, unknown);  // /dev/null takes any number
  const bool same = path == other_path || place(path) == place(other_path);
  check(path.empty() || other_path.empty() || is_device || !same,
        "{}: expected another file than {}, got '{}' for both", flag, other_flag, path);
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "Device: cpu, cuda or cuda:N; walks are the same on every device")
      ->type_name("NAME")
      ->capture_default_str();
}

LoadedGraph GraphOptions::load_all() const {
  LoadedGraph loaded = load_graph(spec, loading);
  for (const std::string& warning : loaded.warnings) fmt::print(stderr, "topomask: warning: {}\n", warning);
  if (!out_ids.empty()) write_node_ids(loaded.graph.num_nodes(), loaded.names, out_ids);
  return loaded;
}

Graph GraphOptions::load_raw() const {
  return load_all().graph;
}

Graph GraphOptions::load() const {
  return normalise(load_raw(), normalisation);
}

void add_graph_options(CLI::App& command, GraphOptions& options, const std::string& default_spec) {
  add_raw_graph_options(command, options, default_spec);
  add_choice(command, kGraphGroup, "--normalise", options.normalisation,
             "How W is computed from the adjacency matrix A and the degrees D");
}

void add_raw_graph_options(CLI::App& command, GraphOptions& options, const std::string& default_spec) {
  options.spec = default_spec;
  std::vector<std::string> forms;
  for (const GraphForm& form : graph_forms()) forms.push_back(form.form);
  CLI::Option* graph =
      command
          .add_option("--graph", options.spec,
                      fmt::format("A file ({}, also .gz .xz) or {}", fmt::join(graph_file_extensions(), " "),
                                  fmt::join(forms, ", ")))
          ->type_name("SPEC")
          ->group(kGraphGroup);
  if (default_spec.empty()) {
    graph->required();
  } else {
    graph->capture_default_str();
  }
  add_choice(command, kGraphGroup, "--duplicates", options.loading.policy.duplicates,
             "What to do with parallel edges");
  add_choice(command, kGraphGroup, "--self-loops", options.loading.policy.self_loops,
             "What to do with edges from a node to itself");
  add_choice(command, kGraphGroup, "--isolated", options.loading.policy.isolated,
             "What to do with nodes without edges");
  add_choice(command, kGraphGroup, "--components", options.loading.policy.components,
             "What to do with several connected components");
  add_choice(command, kGraphGroup, "--direction", options.loading.policy.direction, "Direction of the edges");
  command
      .add_option(
          "--max-file-size", options.loading.read.max_file_size,
          "Size limit of a file, also after decompression, such as 2GB (default: 200 times the size of a "
          "compressed file, or what the memory allows)")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->type_name("SIZE")
      ->group(kGraphGroup);
  command
      .add_option("--out-ids", options.out_ids,
                  "Write the names of the nodes: one line per node with its number, a tab and its name in "
                  "the graph file")
      ->type_name("FILE")
      ->group(kGraphGroup);
}

void add_kernel_option(CLI::App& command, std::string& kernel) {
  kernel = NodeKernel().to_string();
  std::vector<std::string> forms;
  for (const KernelForm& form : kernel_forms()) forms.push_back(form.form);
  command.add_option("--kernel", kernel, fmt::format("Node kernel: {}", fmt::join(forms, ", ")))
      ->type_name("SPEC")
      ->capture_default_str();
}

void add_walk_options(CLI::App& command, WalkFlags& flags) {
  command.add_option("--p-halt", flags.p_halt, "Probability that a walk halts at each node")
      ->capture_default_str()
      ->group(kWalkGroup);
  command
      .add_option(
          "--max-hops", flags.max_hops,
          fmt::format("Maximum length of a walk in hops (default {}, or the length of the survival function)",
                      WalkOptions().max_hops))
      ->group(kWalkGroup);
  command
      .add_option("--length", flags.length,
                  "Length of a walk: geometric, fixed (always --max-hops), or survival:S0,S1,... with "
                  "Sk = Pr(length >= k)")
      ->type_name("geometric|fixed|survival:S0,S1,...")
      ->capture_default_str()
      ->group(kWalkGroup);
  add_choice(command, kWalkGroup, "--step", flags.features.walks.step, "Distribution of the next node");
  add_choice(command, kWalkGroup, "--coupling", flags.features.walks.coupling,
             "Coupling of the walks from one node, to lower the variance");
  add_choice(command, kWalkGroup, "--ensembles", flags.features.ensembles, "Which walks the keys use");
  command
      .add_flag_callback(
          "--ad-hoc", [&flags] { flags.features.importance_weights = false; },
          "No importance weights: every visit counts 1 (biased)")
      ->group(kWalkGroup);
}

FeatureOptions WalkFlags::to_feature_options(std::int64_t num_walks, std::uint64_t seed) const {
  FeatureOptions options = features;
  WalkOptions& walks = options.walks;
  walks.num_walks = num_walks;
  walks.seed = seed;
  walks.p_halt = p_halt;
  if (max_hops) walks.max_hops = *max_hops;
  parse_length(walks, length, "--length");
  if (walks.length == LengthLaw::survival && !max_hops)
    walks.max_hops = static_cast<int>(walks.survival.size()) - 1;
  check_walk_options(walks);
  return options;
}

}  // namespace topomask::cli
