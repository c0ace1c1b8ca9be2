// What the finished runs of an experiment say together.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace topomask::cli {

struct FinishedRun {
  std::string variant;
  nlohmann::ordered_json result;  // result.json
  std::string folder;             // below the experiment's
};

// Table 1 with softmax+grf, the ablation of the features, the ablation of the number of walks (p_halt = 1/2).
const std::vector<std::string>& table_variants();

// FOLDER/VARIANT/seed-S/result.json of all variants and seeds that are there; variants in the order above,
// then others by name; seeds ascending.
std::vector<FinishedRun> find_finished_runs(const std::string& folder);

// {"runs": [...], "variants": [{"variant", "seeds", "accuracy_mean", "accuracy_se", ...}]}. The standard
// error of the mean is null for a single run.
nlohmann::ordered_json summarise_runs(const std::vector<FinishedRun>& runs);

// The same for people.
std::string format_summary(const nlohmann::ordered_json& summary);

}  // namespace topomask::cli
