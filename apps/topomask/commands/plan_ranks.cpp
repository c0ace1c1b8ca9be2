#include "commands/plan_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/check.h"
#include "options/choices.h"
#include "options/dtypes.h"
#include "progress.h"
#include "topomask/device_profile.h"

namespace topomask::cli {
namespace {

constexpr const char* kRankPlanGroup = "Ranks";

nlohmann::ordered_json counts_json(const RankCounts& counts) {
  nlohmann::ordered_json json;
  for (const RankCountField& field : rank_count_fields())
    json[std::string(field.name)] = counts.*field.member;
  return json;
}

nlohmann::ordered_json rank_plan_json(const std::string& graph, const RankPlanOptions& options,
                                      const RankPlan& plan) {
  nlohmann::ordered_json memory;
  for (const auto& [use, bytes] : plan.memory) memory[std::string(use)] = bytes;
  memory["total"] = plan.memory_total;
  const auto bytes = [](double mean, double most) {
    return nlohmann::ordered_json{{"mean", mean}, {"largest", most}};
  };
  return {{"graph", graph},
          {"nodes", plan.nodes},
          {"ranks", plan.ranks},
          {"device", options.device},
          {"dtype", word_of(options.dtype)},
          {"source", plan.source},
          {"scaled", plan.scaled},
          {"engine", word_of(plan.engine)},
          {"route", word_of(plan.route)},
          {"mean", counts_json(plan.mean)},
          {"largest", counts_json(plan.largest)},
          {"bytes_once", bytes(plan.bytes_once, plan.bytes_once_most)},
          {"bytes_forward", bytes(plan.bytes_forward, plan.bytes_forward_most)},
          {"bytes_backward", bytes(plan.bytes_backward, plan.bytes_backward_most)},
          {"memory", memory},
          {"memory_limit", plan.memory_limit},
          {"fits", plan.fits()},
          {"link_bandwidth", plan.link_bandwidth},
          {"seconds_compute", plan.seconds_compute},
          {"seconds_exchange", plan.seconds_exchange},
          {"seconds_forward", plan.seconds_forward}};
}

}  // namespace

RankPlanOptions RankPlanFlags::without_ranks() {
  RankPlanOptions options;
  options.ranks = 0;
  return options;
}

void add_rank_plan_options(CLI::App& command, RankPlanFlags& flags) {
  RankPlanOptions& plan = flags.plan;
  CLI::Option* ranks =
      command
          .add_option_function<std::int64_t>(
              "--ranks",
              [&plan](std::int64_t given) {
                check(given >= 1, "--ranks: expected at least 1, got {}", given);
                plan.ranks = given;
              },
              "Plan for this many ranks instead of an accuracy: memory, bytes sent and time of each. "
              "The graph may be larger than the memory of this machine: grid:31623x31623, shards:DIR")
          ->group(kRankPlanGroup);
  for (const char* flag : {"--error", "--confidence", "--for", "--kernel"})
    command.get_option(flag)->excludes(ranks);
  std::vector<std::string> names, meanings;
  for (const DeviceProfile& profile : device_profiles()) {
    names.emplace_back(profile.name);
    meanings.push_back(fmt::format("{}: {}", profile.name, profile.description));
  }
  command
      .add_option("--device", plan.device, fmt::format("Device of each rank. {}", fmt::join(meanings, "; ")))
      ->type_name(fmt::format("{}", fmt::join(names, "|")))
      ->capture_default_str()
      ->needs(ranks)
      ->group(kRankPlanGroup);
  command.add_option("--walks,--num-walks", flags.num_walks, "Walks per node")
      ->capture_default_str()
      ->needs(ranks)
      ->group(kRankPlanGroup);
  command.add_option("--heads", plan.heads, "Attention heads, which share one set of walks")
      ->capture_default_str()
      ->needs(ranks)
      ->group(kRankPlanGroup);
  command
      .add_option_function<double>(
          "--link-bandwidth",
          [&plan](double given) {
            check(given > 0 && std::isfinite(given),
                  "--link-bandwidth: expected more than 0 bytes per second, got {}", given);
            plan.link_bandwidth = given;
          },
          "Bytes per second that a rank sends (default: that of the device)")
      ->type_name("BYTES")
      ->needs(ranks)
      ->group(kRankPlanGroup);
  add_choice(command, kRankPlanGroup, "--dtype", plan.dtype,
             "Data type of q, k and v with --ranks 1; several ranks work in float32");
  command.get_option("--dtype")->needs(ranks);
  add_choice(command, kRankPlanGroup, "--partition", plan.method,
             "How the graph is cut; shards:FOLDER with one shard per rank is cut already");
  command.get_option("--partition")->needs(ranks);
}

void run_rank_plan(const RunOptions& run, const std::string& graph, const RankPlanOptions& options) {
  Progress progress("counting", run.quiet);
  const RankPlan plan = plan_ranks(
      graph, options, [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  erase_progress_line();
  if (run.json) {
    fmt::print("{}\n", rank_plan_json(graph, options, plan).dump());
    return;
  }
  if (run.quiet) return;
  fmt::print("{}", plan.to_string());
  fmt::print("{} head{}, m = {} query/key features, d = {} value channels, {}, {}; {}\n", options.heads,
             options.heads == 1 ? "" : "s", options.channels, options.values, word_of(options.dtype),
             options.learned ? "with a backward pass" : "forward alone",
             device_profile(options.device).description);
}

}  // namespace topomask::cli
