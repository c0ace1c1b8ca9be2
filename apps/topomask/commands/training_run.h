// One training run in a folder: config.toml, metrics.jsonl, checkpoints, and once it is finished result.json
// with what a report needs (masks.safetensors, examples.safetensors).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "options/vit_settings.h"
#include "topomask/image_training.h"

namespace topomask::cli {

inline constexpr const char* kConfigFile = "config.toml";
inline constexpr const char* kResultFile = "result.json";
inline constexpr const char* kMasksFile = "masks.safetensors";
inline constexpr const char* kExamplesFile = "examples.safetensors";

// Only one process works in a folder.
class FolderLock {
 public:
  // Makes the folder where it is missing. Throws where it cannot be made.
  explicit FolderLock(const std::string& folder, bool wait = false);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool held() const { return held_; }

 private:
  int descriptor_ = -1;
  bool held_ = false;
};

struct TrainingRun {
  VitSettings settings;
  std::string folder;
  bool resume = false;      // go on from the folder's checkpoint, if there is one
  bool prints_text = true;  // a line for each epoch
  bool quiet = false;       // no progress bar
  std::string label;        // of the bar
  std::function<bool()> should_stop;
};

struct TrainingReport {
  TrainResult result;
  nlohmann::ordered_json json;  // as in result.json
};

// The caller holds the folder's lock.
TrainingReport run_training(const TrainingRun& run, const ImageData& data);

// result.json of a finished run, or nothing.
std::optional<nlohmann::ordered_json> read_result(const std::string& folder);

}  // namespace topomask::cli
