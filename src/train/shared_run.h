// What runs share whatever their model: one of several ranks, settings to resume with, a folder to train in.
#pragma once

#include "core/check.h"
#include "io/files.h"
#include "topomask/distributed.h"
#include "topomask/runs.h"
#include "train/checkpoint_file.h"

namespace topomask {

using RunMetadata = std::map<std::string, std::string>;  // of a checkpoint, by the keys of checkpoint_file.h

// Each rank of a machine has a GPU of its own, unless the settings name one. Collective.
template <class RunSettings>
RunSettings on_own_device(RunSettings settings, const Ranks& ranks) {
  if (ranks.has_group()) settings.device = ranks.compute_on(settings.device).str();
  return settings;
}

template <class RunSettings>
void check_same_settings(const RunFolder& folder, const RunSettings& saved, const RunSettings& now) {
  const std::string differs = difference(saved, now);
  check(differs.empty(), "{}: {}; a run resumes with its own settings", folder.path(), differs);
}

// Calls `train` on every rank with the settings of the first, which alone has the folder. Where `finished`
// finds a result there, it is only reported. Collective.
template <class RunSettings, class Finished, class Train>
RunResult run_on_ranks(const char* caller, const Ranks& ranks, const RunFolder* folder,
                       const RunSettings& given, const Finished& finished, const Train& train) {
  const bool first = ranks.rank() == 0;
  check(first == (folder != nullptr), "{}: rank 0, and no other, has the folder of the run", caller);
  std::optional<RunResult> result;
  ranks.together("the folder of the run", [&] {
    if (first) result = finished(*folder, given);
  });
  const std::string text = ranks.from_first(result ? "" : given.to_toml(), "the settings");
  if (result) return *result;
  if (text.empty()) return {};  // the first rank has a result to report, the others have none
  return train(first ? given : RunSettings::from_toml_text(text, "the settings of rank 0"));
}

// A trainer that resumes from the folder's checkpoint, if any; config.toml is written. `folder` is null on
// all ranks but the first.
inline std::unique_ptr<Trainer> open_trainer(const RunFolder* folder, Task& task, const TrainOptions& options,
                                             const RunMetadata& description, const MetadataCheck& accept) {
  auto trainer =
      std::make_unique<Trainer>(task, options, folder == nullptr ? "" : folder->path(), description);
  trainer->resume(accept);
  if (folder != nullptr) write_file(folder->file(kConfigFile), description.at(kSettingsKey));
  return trainer;
}

}  // namespace topomask
