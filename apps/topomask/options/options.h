// Options that several subcommands share, in groups; each group knows its flags, defaults and meaning.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/numbers.h"
#include "topomask/features.h"
#include "topomask/graph_spec.h"
#include "topomask/kernels.h"

namespace topomask::cli {

// --seed, --threads, --json, --quiet
struct RunOptions {
  std::uint64_t seed = 0;
  std::optional<int> threads;
  bool json = false;
  bool quiet = false;

  void apply() const;  // sets the number of threads
  bool prints_text() const { return !json && !quiet; }
};
void add_run_options(CLI::App& command, RunOptions& options);
// The same without --seed, for commands that train: their seed is one of many settings, and sums in another
// order round differently.
void add_output_options(CLI::App& command, RunOptions& options);

// Throws where two options name one file to write to.
void check_another_file(const char* flag, const std::string& path, const char* other_flag,
                        const std::string& other_path);

// --device
void add_device_option(CLI::App& command, std::string& device);

// --graph, --normalise, --out-ids and what to do with irregular edges
struct GraphOptions {
  std::string spec;
  Normalisation normalisation = Normalisation::symmetric;
  LoadOptions loading;
  std::string out_ids;

  LoadedGraph load_all() const;  // as read; prints warnings to stderr, writes the ids if asked to
  Graph load_raw() const;        // the graph of it
  Graph load() const;            // normalised
};
// An empty `default_spec` makes --graph mandatory.
void add_graph_options(CLI::App& command, GraphOptions& options, const std::string& default_spec = "");
// The same without --normalise, for commands that take the graph as it is.
void add_raw_graph_options(CLI::App& command, GraphOptions& options, const std::string& default_spec = "");

// --kernel
void add_kernel_option(CLI::App& command, std::string& kernel);

// --p-halt, --max-hops, --length, --step, --coupling, --ensembles, --ad-hoc; the number of walks is separate
// because some subcommands take a list of numbers
struct WalkFlags {
  double p_halt = WalkOptions().p_halt;
  std::optional<int> max_hops;
  std::string length = std::string(word_of(WalkOptions().length));
  FeatureOptions features;

  FeatureOptions to_feature_options(std::int64_t num_walks, std::uint64_t seed) const;
};
void add_walk_options(CLI::App& command, WalkFlags& flags);

}  // namespace topomask::cli
