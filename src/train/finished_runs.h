// Results of finished runs, and what several of them say together.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "topomask/data.h"

namespace topomask {

// The names of the folders in a folder, sorted; none where it is missing.
std::vector<std::string> subfolders(const std::string& folder);

// A result.json; `path` is named where it cannot be understood. Keys of earlier versions have today's names.
nlohmann::ordered_json parse_result(const std::string& text, const std::string& path);
// The result of a finished run, or nothing.
std::optional<nlohmann::ordered_json> read_result(const std::string& folder);

// {"train_images": "0123456789abcdef", ...}
nlohmann::ordered_json to_json(const DataFingerprint& fingerprint);
// What differs between such an object and a data set: "training labels, validation labels", or "".
std::string changed_data(const nlohmann::ordered_json& saved, const DataFingerprint& now);

struct FinishedRun {
  std::string variant;
  nlohmann::ordered_json result;  // result.json
  std::string folder;             // below the experiment's
};

// FOLDER/VARIANT/seed-S/result.json of all variants and seeds that exist; variants in the order of
// image_table_variants(), then of video_table_variants(), then others by name; seeds ascending.
std::vector<FinishedRun> find_finished_runs(const std::string& folder);

// {"runs": [...], "variants": [{"variant", "seeds", "accuracy_mean", "accuracy_se", ...}]}. The standard
// error of the mean is null for a single run.
nlohmann::ordered_json summarise_runs(const std::vector<FinishedRun>& runs);

}  // namespace topomask
