#include "options/attention_options.h"

#include "core/check.h"
#include "options/choices.h"

namespace topomask::cli {
namespace {

constexpr const char* kGroup = "Attention";

}  // namespace

void add_max_workspace_option(CLI::App& command, AttentionOptions& options, const std::string& more) {
  command
      .add_option(
          "--max-workspace", options.max_workspace,
          "Limit in bytes on what an engine allocates beside its inputs and output; 0: three quarters of the "
          "free memory on a GPU, elsewhere 2 GiB or four times the inputs and output, whichever is more" +
              more)
      ->type_name("BYTES")
      ->capture_default_str()
      ->group(kGroup);
}

void check_feature_options(const CLI::App& command, const AttentionOptions& options) {
  const auto check_taken = [&](const char* flag, bool taken, const char* by) {
    check(taken || command.get_option(flag)->count() == 0, "{}: has no effect; it is for {}", flag, by);
  };
  const FeatureMapKind kind = options.feature_map.kind;
  const bool linear = options.kind == AttentionKind::linear;
  check_taken("--feature-map", linear, "--kind linear");
  check_taken("--epsilon", linear && (kind == FeatureMapKind::relu || kind == FeatureMapKind::squared_relu),
              "--feature-map relu and squared-relu");
  check_taken("--num-features", linear && kind == FeatureMapKind::favor, "--feature-map favor");
}

void add_attention_options(CLI::App& command, AttentionFlags& flags) {
  AttentionOptions& options = flags.attention;
  add_mask_options(command, flags.mask);
  add_choice(command, kGroup, "--kind", options.kind, "Kind of attention");
  add_choice(command, kGroup, "--feature-map", options.feature_map.kind,
             "Feature map phi of linear attention");
  command
      .add_option("--epsilon", options.feature_map.epsilon,
                  "Added to relu and squared-relu; without it, a row whose features are all zero gives zeros")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--num-features", options.feature_map.num_features, "favor: number of random features")
      ->capture_default_str()
      ->group(kGroup);
  add_choice(command, kGroup, "--engine", options.engine, "How attention is computed");
  add_max_workspace_option(
      command, options,
      ". With --ranks: of the feature engine on each rank, 0: 2 GiB; the mask engine's "
      "memory is that of its nonzeros and not limited, 'topomask plan --ranks' predicts it");
  command
      .add_flag("--check-finite", options.check_finite, "Reject q, k or v that contain a NaN or an infinity")
      ->group(kGroup);
  add_device_option(command, flags.device);
  add_rank_options(command, flags.ranks);
  add_run_options(command, flags.run);
}

nlohmann::ordered_json plan_json(const AttentionPlan& plan) {
  nlohmann::ordered_json json = {
      {"engine", word_of(plan.engine)}, {"why", plan.why}, {"candidates", nlohmann::ordered_json::array()}};
  for (const PlanCandidate& candidate : plan.candidates) {
    nlohmann::ordered_json row = {{"engine", word_of(candidate.engine)},
                                  {"admissible", candidate.admissible}};
    if (!candidate.admissible) row["reason"] = candidate.reason;
    row["multiply_adds"] = candidate.multiply_adds;
    row["value_multiply_adds"] = candidate.value_multiply_adds;
    row["bytes"] = candidate.bytes;
    row["workspace_bytes"] = candidate.workspace;
    row["predicted_seconds"] = candidate.predicted_cost;
    json["candidates"].push_back(std::move(row));
  }
  return json;
}

}  // namespace topomask::cli
