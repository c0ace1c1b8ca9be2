// The runs of a table, one after the other.
#pragma once

#include <string>
#include <vector>

#include "topomask/run_table.h"
#include "topomask/runs.h"

namespace topomask {

inline constexpr const char* kSummaryFile = "results.json";

struct TableWork {
  std::string folder;
  std::vector<std::string> variants;
  std::vector<std::uint64_t> seeds;
  std::function<bool(const std::string& run_folder)> is_finished;
  std::function<TrainResult(RunFolder&, const TableRun&, const TrainCallbacks&)> train;
  std::function<std::string()> merge;  // what is finished, into results.json
};

// Runs what is missing, all variants of one seed before the next seed: a part of the work is a whole table
// already.
TableResult run_table(const TableWork& work, const TableCallbacks& callbacks);

// Throws unless there are seeds, and no variant or seed is listed twice. `name`: of the table.
void check_distinct(const std::vector<std::string>& variants, const std::vector<std::uint64_t>& seeds,
                    const char* name);

// NAME@key=value@key=value: a variant with other settings, none of them `fixed`.
struct ChangedVariant {
  std::string name;
  SettingValues changes;
};
ChangedVariant split_changes(const std::string& variant, const std::vector<std::string>& fixed);

}  // namespace topomask
