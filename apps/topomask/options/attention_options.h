// Options of the subcommands that run attention: the kind, the feature map, the engine and its limits.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "options/mask_options.h"
#include "options/rank_options.h"
#include "topomask/attention.h"

namespace topomask::cli {

// Of attention under a mask, alone or over ranks: those of the mask, --kind, --feature-map, --epsilon,
// --num-features, --engine, --max-workspace, --check-finite, --device, those of ranks and of the run
struct AttentionFlags {
  RunOptions run;
  MaskFlags mask;
  AttentionOptions attention;
  std::string device = "cpu";
  RankFlags ranks;
};
void add_attention_options(CLI::App& command, AttentionFlags& flags);
// Throws where an option was given that this kind of attention or feature map does not read.
void check_feature_options(const CLI::App& command, const AttentionOptions& options);
// `more`: added to the description
void add_max_workspace_option(CLI::App& command, AttentionOptions& options, const std::string& more = "");

nlohmann::ordered_json plan_json(const AttentionPlan& plan);

}  // namespace topomask::cli
