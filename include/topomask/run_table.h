// A table of training runs: variants over several seeds. Each run has a folder FOLDER/VARIANT/seed-S.
// Finished runs are never run again and interrupted runs are resumed, so the work can be cut into slices of
// any length and spread over processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "topomask/train.h"

namespace topomask {

// One run of the table.
struct TableRun {
  std::string variant;
  std::uint64_t seed = 0;
  std::int64_t number = 0, total = 0;  // number: from 1
};

struct TableCallbacks {
  std::function<void()> started;                            // the data are there
  std::function<bool()> should_stop;                        // asked before each run and after each step
  std::function<TrainCallbacks(const TableRun&)> training;  // for a run that begins
  std::function<void(const TableRun&, const TrainResult&)> finished;
  std::function<void(const TableRun&)> in_use;  // left out: another process trains it
  std::function<void(const TableRun&, const std::string& why)> diverged;
};

struct TableResult {
  std::string json;  // FOLDER/results.json: all finished runs, and mean and standard error per variant
  std::int64_t finished = 0, in_use = 0, total = 0;  // runs that were asked for
  std::vector<std::string> diverged;                 // VARIANT/seed-S: why, of those whose numbers became NaN
};

}  // namespace topomask
