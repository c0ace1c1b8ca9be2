#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "choices.h"
#include "core/check.h"
#include "core/parallel.h"
#include "graph/names.h"
#include "topomask/graph_io.h"

namespace topomask::cli {
namespace {

constexpr Choice<StepLaw> kSteps[] = {{"uniform", StepLaw::uniform}, {"weighted", StepLaw::weighted}};
constexpr Choice<Coupling> kCouplings[] = {{"independent", Coupling::independent},
                                           {"antithetic", Coupling::antithetic},
                                           {"repelling", Coupling::repelling},
                                           {"both", Coupling::both}};
constexpr Choice<Ensembles> kEnsembles[] = {{"shared", Ensembles::shared},
                                            {"independent", Ensembles::independent},
                                            {"asymmetric", Ensembles::asymmetric}};

template <class Number>
std::vector<Number> parse_list(std::string_view list, const std::string& flag, const char* kind) {
  std::vector<Number> numbers;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = list.substr(begin, end - begin);
    Number number{};
    const auto [stop, status] = std::from_chars(item.data(), item.data() + item.size(), number);
    check(status == std::errc() && stop == item.data() + item.size(), "{}: '{}' in '{}' is not a {}", flag,
          item, list, kind);
    numbers.push_back(number);
    begin = end + 1;
  }
  return numbers;
}

constexpr const char* kGraphGroup = "Graph";
constexpr const char* kWalkGroup = "Walks";

}  // namespace

void RunOptions::apply() const {
  if (threads) set_num_threads(*threads);
}

void add_run_options(CLI::App& command, RunOptions& options) {
  command.add_option("--seed", options.seed, "Everything random follows from this number")
      ->capture_default_str();
  add_output_options(command, options);
  command.get_option("--threads")
      ->description("Threads to use (default: all cores); results do not depend on it");
}

void add_output_options(CLI::App& command, RunOptions& options) {
  command.add_option("--threads", options.threads, "Threads to use (default: all cores)");
  command.add_flag("--json", options.json, "Print one JSON object instead of a table");
  command.add_flag("--quiet", options.quiet,
                   "Print nothing but errors and warnings (and JSON, if asked for)");
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda or cuda:N; walks do not depend on it")
      ->type_name("NAME")
      ->capture_default_str();
}

Graph GraphOptions::load_raw() const {
  LoadedGraph loaded = load_graph(spec, loading);
  for (const std::string& warning : loaded.warnings) fmt::print(stderr, "topomask: warning: {}\n", warning);
  if (!out_ids.empty()) write_node_ids(loaded.graph.num_nodes(), loaded.names, out_ids);
  return std::move(loaded.graph);
}

Graph GraphOptions::load() const {
  return normalise(load_raw(), normalisation);
}

void add_graph_options(CLI::App& command, GraphOptions& options, const std::string& default_spec) {
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
  GraphPolicy& policy = options.loading.policy;
  add_choice(command, kGraphGroup, "--normalise", options.normalisation, kNormalisationNames,
             "W from the adjacency matrix");
  add_choice(command, kGraphGroup, "--duplicates", policy.duplicates, kDuplicatesNames, "Parallel edges");
  add_choice(command, kGraphGroup, "--self-loops", policy.self_loops, kSelfLoopsNames,
             "Edges from a node to itself");
  add_choice(command, kGraphGroup, "--isolated", policy.isolated, kIsolatedNames, "Nodes without edges");
  add_choice(command, kGraphGroup, "--components", policy.components, kComponentsNames,
             "All components, or the largest alone (drop)");
  add_choice(command, kGraphGroup, "--direction", policy.direction, kDirectionNames,
             "Directed or undirected edges");
  command
      .add_option(
          "--max-file-size", options.loading.read.max_file_size,
          "The most bytes of a file and of what it unpacks to, such as 2GB (default: 200 times the size "
          "of a compressed file, or what the memory allows)")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE")
      ->group(kGraphGroup);
  command.add_option("--out-ids", options.out_ids, "Write 'node <tab> name in the file', a line each")
      ->type_name("FILE")
      ->group(kGraphGroup);
}

void add_kernel_option(CLI::App& command, std::string& kernel) {
  kernel = NodeKernel().to_string();
  std::vector<std::string> forms;
  for (const KernelForm& form : kernel_forms()) forms.push_back(form.form);
  command.add_option("--kernel", kernel, fmt::format("{}", fmt::join(forms, ", ")))
      ->type_name("SPEC")
      ->capture_default_str();
}

void add_walk_options(CLI::App& command, WalkFlags& flags) {
  command.add_option("--p-halt", flags.p_halt, "Probability to halt at every node")
      ->capture_default_str()
      ->group(kWalkGroup);
  command
      .add_option("--max-hops", flags.max_hops,
                  fmt::format("Longest walk (default {}, or the length of the survival function)",
                              flags.default_max_hops))
      ->group(kWalkGroup);
  command
      .add_option("--length", flags.length,
                  "Length of a walk: geometric, fixed (always --max-hops), or survival:S0,S1,... with "
                  "Sk = Pr(length >= k)")
      ->type_name("geometric|fixed|survival:S0,S1,...")
      ->capture_default_str()
      ->group(kWalkGroup);
  add_choice(command, kWalkGroup, "--step", flags.features.walks.step, kSteps,
             "Next node: any neighbour, or by |weight|");
  add_choice(command, kWalkGroup, "--coupling", flags.features.walks.coupling, kCouplings,
             "Variance reduction: antithetic termination, repelling steps");
  add_choice(command, kWalkGroup, "--ensembles", flags.features.ensembles, kEnsembles,
             "Walks of the keys: the queries' own, fresh ones, or none (one-hot keys)");
  command
      .add_flag_callback(
          "--ad-hoc", [&flags] { flags.features.importance_weights = false; },
          "No importance weights: every visit counts 1 (biased)")
      ->group(kWalkGroup);
}

FeatureOptions WalkFlags::to_feature_options(std::int64_t num_walks, std::uint64_t seed) const {
  static const std::vector<std::string> kLengths = {"geometric", "fixed", "survival"};
  FeatureOptions options = features;
  WalkOptions& walks = options.walks;
  walks.num_walks = num_walks;
  walks.seed = seed;
  walks.p_halt = p_halt;
  walks.max_hops = max_hops.value_or(default_max_hops);
  const std::size_t colon = length.find(':');
  const std::string law = length.substr(0, colon);
  if (law == "geometric" || law == "fixed") {
    check(colon == std::string::npos, "--length: {} takes no parameters, got '{}'", law, length);
    walks.length = law == "fixed" ? LengthLaw::fixed : LengthLaw::geometric;
  } else if (law == "survival") {
    check(colon != std::string::npos, "--length: expected survival:S0,S1,..., got '{}'", length);
    walks.length = LengthLaw::survival;
    walks.survival = parse_numbers(length.substr(colon + 1), "--length");
    if (!max_hops) walks.max_hops = static_cast<int>(walks.survival.size()) - 1;
  } else {
    fail_unknown("--length", law, kLengths);
  }
  check_walk_options(walks);
  return options;
}

std::vector<std::int64_t> parse_integers(const std::string& list, const std::string& flag) {
  return parse_list<std::int64_t>(list, flag, "whole number");
}

std::vector<double> parse_numbers(const std::string& list, const std::string& flag) {
  return parse_list<double>(list, flag, "number");
}

std::string coupling_name(Coupling coupling) {
  return name_of(kCouplings, coupling);
}

std::string ensembles_name(Ensembles ensembles) {
  return name_of(kEnsembles, ensembles);
}

std::string normalisation_name(Normalisation normalisation) {
  return name_of(kNormalisationNames, normalisation);
}

}  // namespace topomask::cli
