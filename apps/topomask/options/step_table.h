// Scores of rollouts as a table for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace topomask::cli {

// `scores`: as rollout_scores_json (topomask/particle_runs.h) has them.
std::string format_rollout_scores(const nlohmann::ordered_json& scores);

}  // namespace topomask::cli
