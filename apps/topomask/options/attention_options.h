// Options of the subcommands that run attention: the kind, the feature map, the engine and its limits.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "topomask/attention.h"

namespace topomask::cli {

// --kind, --feature-map, --epsilon, --num-features, --engine, --max-workspace, --check-finite
void add_attention_options(CLI::App& command, AttentionOptions& options);
void add_max_workspace_option(CLI::App& command, AttentionOptions& options);

nlohmann::ordered_json plan_json(const AttentionPlan& plan);

}  // namespace topomask::cli
