// `topomask plan`: how many walks an accuracy needs, by the theorem and by measurement, and what they cost;
// with --ranks what ranks will need (plan_ranks.h).
#include "topomask/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "commands/plan_ranks.h"
#include "core/check.h"
#include "options/attention_options.h"
#include "options/choices.h"
#include "options/options.h"
#include "progress.h"
#include "table.h"

namespace topomask::cli {
namespace {

struct PlanCommand {
  RunOptions run;
  GraphOptions graph;
  WalkFlags walks;
  std::string kernel;
  PlanOptions request;
  RankPlanFlags ranks;
};

std::string format_walks(std::int64_t walks) {
  return walks < 0 ? "no number" : format_count(static_cast<double>(walks));
}

// By default the bound is for a single entry, so many of the N^2 entries may lie outside.
std::string describe_request(const FeaturePlan& plan, const PlanOptions& request) {
  if (request.scope == PlanScope::entry) {
    return fmt::format(
        "each entry of the mask within {} with probability {} (all at once: --for all-entries)",
        request.error, request.confidence);
  }
  return fmt::format("all {} entries of the mask at once within {} with probability {}, by the union bound",
                     format_count(static_cast<double>(plan.entries)), request.error, request.confidence);
}

std::string describe_constant(const FeaturePlan& plan, const char* series) {
  if (std::isfinite(plan.c_untruncated)) {
    return fmt::format("{:.6g} ({:.6g} for the whole series of {})", plan.c, plan.c_untruncated, series);
  }
  return fmt::format("{:.6g} with {} cut at --max-hops; infinite for the whole series", plan.c, series);
}

nlohmann::ordered_json optional_count(std::int64_t count) {
  return count < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(count);
}

nlohmann::ordered_json optional_number(double number) {
  return std::isnan(number) ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(number);
}

nlohmann::ordered_json ensembles_json(const EnsembleComparison& comparison) {
  nlohmann::ordered_json json = {{"best", word_of(comparison.best)},
                                 {"advice", comparison.advice},
                                 {"plans", nlohmann::ordered_json::array()}};
  for (const EnsemblePlan& own : comparison.plans) {
    json["plans"].push_back({{"ensembles", word_of(own.ensembles)},
                             {"walks_measured", optional_count(own.plan.walks_measured)},
                             {"walks", own.plan.walks},
                             {"nnz_query", own.plan.nnz_query},
                             {"nnz_key", own.plan.nnz_key},
                             {"nnz_mask", own.plan.nnz_mask},
                             {"nnz_mask_counted", own.plan.nnz_mask_counted},
                             {"engine", word_of(own.plan.attention.engine)},
                             {"predicted_seconds", own.plan.predicted_seconds},
                             {"relative_error", optional_number(own.plan.relative_error)},
                             {"relative_error_se", optional_number(own.plan.relative_error_se)}});
  }
  return json;
}

const FeaturePlan& plan_of(const EnsembleComparison& comparison, Ensembles ensembles) {
  return std::find_if(comparison.plans.begin(), comparison.plans.end(),
                      [&](const EnsemblePlan& own) { return own.ensembles == ensembles; })
      ->plan;
}

void print_json(const EnsembleComparison& comparison, const PlanCommand& command) {
  const FeaturePlan& plan = plan_of(comparison, command.walks.features.ensembles);
  nlohmann::ordered_json json = {
      {"error", command.request.error},
      {"confidence", command.request.confidence},
      {"for", word_of(command.request.scope)},
      {"entries", plan.entries},
      {"theorem_applies", plan.theorem_applies},
      {"c", plan.c},
      {"c_untruncated", plan.c_untruncated},
      {"walks_theorem", optional_count(plan.walks_theorem)},
      {"walks_measured", optional_count(plan.walks_measured)},
      {"worst_deviation", plan.worst_deviation},
      {"worst_bias", plan.worst_bias},
      {"pilot", {{"walks", plan.pilot_walks}, {"repeats", plan.pilot_repeats}, {"rows", plan.pilot_rows}}},
      {"walks", plan.walks},
      {"sparsity_bound", plan.sparsity_bound},
      {"nonzeros_mean", plan.nonzeros_mean},
      {"nonzeros_max", plan.nonzeros_max},
      {"nnz_query", plan.nnz_query},
      {"nnz_key", plan.nnz_key},
      {"nnz_mask", plan.nnz_mask},
      {"nnz_mask_counted", plan.nnz_mask_counted},
      {"relative_error", optional_number(plan.relative_error)},
      {"relative_error_se", optional_number(plan.relative_error_se)},
      {"attention", plan_json(plan.attention)},
      {"ensembles", ensembles_json(comparison)}};
  if (!plan.note.empty()) json["note"] = plan.note;
  fmt::print("{}\n", json.dump());
}

void print_text(const EnsembleComparison& comparison, const PlanCommand& command) {
  const FeaturePlan& plan = plan_of(comparison, command.walks.features.ensembles);
  Listing listing;
  listing.add("wanted", describe_request(plan, command.request));
  if (plan.theorem_applies) {
    // Even a finite alpha has an infinite f, its square root: the two can differ without a bound.
    const bool one_hot_keys = command.walks.features.ensembles == Ensembles::asymmetric;
    listing.add("c", describe_constant(plan, one_hot_keys ? "alpha" : "f"));
    const bool shared = command.walks.features.ensembles == Ensembles::shared;
    listing.add("walks by the theorem",
                fmt::format("{}{}", format_walks(plan.walks_theorem), shared ? ", off the diagonal" : ""));
  }
  listing.add("walks by measured variance",
              fmt::format("{} (pilot: {} walks, {} repeats, {} rows)", format_walks(plan.walks_measured),
                          plan.pilot_walks, plan.pilot_repeats, plan.pilot_rows));
  listing.add(fmt::format("nonzeros per row, {} walks", format_walks(plan.walks)),
              fmt::format("at most {:.0f}{}; measured mean {:.4g}, largest {}", plan.sparsity_bound,
                          plan.sparsity_by_lemma
                              ? fmt::format(" with probability {} (lemma)", command.request.confidence)
                              : "",
                          plan.nonzeros_mean, plan.nonzeros_max));
  listing.add("nonzeros of the mask",
              fmt::format("{}{}", plan.nnz_mask_counted ? "" : "about ", format_count(plan.nnz_mask)));
  if (!std::isnan(plan.relative_error)) {
    listing.add("error of the whole mask",
                fmt::format("{:.3f} +- {:.3f} of its norm, by {} rows", plan.relative_error,
                            plan.relative_error_se, plan.relative_error_rows));
  }
  if (!plan.note.empty()) listing.add("note", plan.note);
  listing.print();
  fmt::print("\n");
  fmt::print("{}", plan.attention.to_string());
  fmt::print("one head, m = {} query/key features, d = {} value channels, {}\n\n", command.request.features,
             command.request.channels, command.request.learned ? "f learned" : "f fixed");
  fmt::print("{}", comparison.to_string());
}

void run_plan(const PlanCommand& command) {
  command.run.apply();
  check(command.request.features >= 1, "--m: expected at least 1, got {}", command.request.features);
  check(command.request.channels >= 1, "--d: expected at least 1, got {}", command.request.channels);
  if (command.ranks.wanted()) {
    RankPlanOptions plan = command.ranks.plan;
    plan.loading = command.graph.loading;
    plan.normalisation = command.graph.normalisation;
    plan.features = command.walks.to_feature_options(command.ranks.num_walks, command.run.seed);
    plan.channels = command.request.features;
    plan.values = command.request.channels;
    plan.learned = command.request.learned;
    return run_rank_plan(command.run, command.graph.spec, plan);
  }
  const NodeKernel kernel = NodeKernel::parse(command.kernel);
  // The number of walks is what the plan finds; any valid (even) one passes the checks here.
  const FeatureOptions options = command.walks.to_feature_options(WalkOptions{}.num_walks, command.run.seed);
  const Graph graph = command.graph.load();
  Progress progress("pilot", command.run.quiet);
  const EnsembleComparison comparison =
      compare_ensembles(graph, kernel, options, command.request,
                        [&](std::int64_t done, std::int64_t total) { progress.update(done, total); });
  erase_progress_line();
  if (command.run.json) {
    print_json(comparison, command);
  } else if (!command.run.quiet) {
    print_text(comparison, command);
  }
}

}  // namespace

void add_plan_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "plan", "Number of walks for a wanted accuracy, and their cost; or what each rank needs");
  const auto command = std::make_shared<PlanCommand>();
  add_graph_options(*sub, command->graph, "karate");
  add_kernel_option(*sub, command->kernel);
  add_walk_options(*sub, command->walks);
  PlanOptions& request = command->request;
  sub->add_option("--error", request.error, "Largest absolute error of an entry of the mask")
      ->capture_default_str();
  sub->add_option("--confidence", request.confidence, "Probability that the error stays within --error")
      ->capture_default_str();
  add_choice(*sub, "Options", "--for", request.scope, "What --confidence applies to");
  sub->add_option("--m", request.features, "Query/key features per head")->capture_default_str();
  sub->add_option("--d", request.channels, "Value channels per head")->capture_default_str();
  sub->add_flag_callback(
      "--fixed-f", [command] { command->request.learned = false; },
      "f is not learned: a CPU then computes the values of the mask once, not in every pass");
  add_rank_plan_options(*sub, command->ranks);
  add_run_options(*sub, command->run);
  sub->footer(
      "The last table has each kind of ensemble with the walks that it needs for the same error. seconds: "
      "predicted\n"
      "time of a forward pass of attention (see 'topomask calibrate'); rel. error: of the whole mask in "
      "the\n"
      "Frobenius norm, one sample against the exact kernel up to twice --max-hops.\n"
      "With --ranks the counts are those of the graph if it has at most 2^20 nodes, else scaled from smaller "
      "ones; "
      "the\n"
      "output says which.\n"
      "Examples:\n"
      "  topomask plan --graph grid:32x32 --error 0.05 --confidence 0.99 --for all-entries\n"
      "  topomask plan --graph mesh.ply --kernel diffusion:sigma2=2 --m 32 --d 64 --json\n"
      "  topomask plan --ranks 64 --device h200 --graph grid:31623x31623 --heads 8\n"
      "  topomask plan --ranks 1 --device h200 --graph grid:10000x10000 --walks 4 --p-halt 0.5 --max-hops 3 "
      "--m 32 --d 32\n"
      "                --dtype bfloat16 --fixed-f");
  sub->callback([command] { run_plan(*command); });
}

}  // namespace topomask::cli
