// What the commands for tables of runs share: their options, and their callbacks on a terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interrupt.h"
#include "options/options.h"
#include "progress.h"
#include "topomask/run_table.h"
#include "topomask/runs.h"

namespace topomask::cli {

struct TableOptions {
  RunOptions run;
  std::string config, out, variants, seeds = "0,1,2";
  double time_limit = 0;
  std::shared_ptr<SettingValues> given = std::make_shared<SettingValues>();

  std::vector<std::string> chosen_variants() const;  // empty: the default ones
  std::vector<std::uint64_t> chosen_seeds() const;   // "0,1,2" or "0-2"
};
// --variants, --seeds, --config, --out and --time-limit.
void add_table_options(CLI::App& command, TableOptions& options, const std::string& about_variants);

// Progress, Ctrl-C and a time limit.
class TableSession {
 public:
  // `score`: one line about a finished run.
  TableSession(const TableOptions& options, std::function<std::string(const TrainResult&)> score);
  TableCallbacks callbacks();  // valid as long as the session
  // How many runs there are, and where.
  void print_ending(const TableResult& result, const std::string& summary, const std::string& report);

 private:
  const TableOptions& options_;
  std::function<std::string(const TrainResult&)> score_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<InterruptScope> interrupts_;
  std::optional<Progress> progress_;
};

}  // namespace topomask::cli
