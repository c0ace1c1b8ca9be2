// A training run on the terminal, whatever its model: flags, the folder of the run, ranks; progress, Ctrl-C
// and a time limit as callbacks of the library.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/check.h"
#include "interrupt.h"
#include "options/rank_options.h"
#include "options/setting_options.h"
#include "progress.h"

namespace topomask::cli {

// Help texts for a kind of model.
struct TrainHelp {
  std::string kind;     // of 'topomask train KIND'
  std::string about;    // one sentence
  std::string variant;  // part of the folder's name: KIND-VARIANT-seed-SEED
  std::string sources;  // of settings
  std::string footer;
};

// All but the settings.
struct TrainFlags {
  std::string kind;
  RunOptions run;
  std::string config, out;
  bool resume = false, print_config = false;
  double time_limit = 0;
  RankFlags ranks;
  std::shared_ptr<SettingValues> given = std::make_shared<SettingValues>();

  bool wants_saved_settings() const { return resume && config.empty(); }
};

// What a kind of model does in its own way.
template <class RunSettings>
struct TrainKind {
  RunSettings (*choose)(const TrainFlags&);
  RunResult (*train)(const RanksPtr&, RunFolder*, const RunSettings&, const TrainCallbacks&);
  void (*print)(const std::string& folder, const nlohmann::ordered_json& result, const TrainResult&);
};

class TrainSession {
 public:
  // `prints`: lines about epochs on stdout. `time_limit` in seconds from now; 0: none.
  TrainSession(bool quiet, bool prints, double time_limit);
  TrainCallbacks callbacks();  // valid as long as the session

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool prints_;
  double time_limit_;
  std::optional<InterruptScope> interrupts_;  // while data are read, Ctrl-C ends the program at once
  Progress progress_;
};

// Runs on each rank; there may be only one. The first has the folder and prints for all.
template <class RunSettings>
void run_train(const TrainFlags& flags, const TrainKind<RunSettings>& kind, const RanksPtr& ranks) {
  const bool first = ranks->rank() == 0;
  TrainSession session(flags.run.quiet || !first, first && flags.run.prints_text(), flags.time_limit);
  std::unique_ptr<RunFolder> folder;
  RunSettings settings;
  ranks->together("the folder of the run", [&] {
    if (!first) return;
    // The lock is taken before anything slow, so that a second process fails at once.
    if (flags.resume) folder = std::make_unique<RunFolder>(flags.out, RunStart::resume);
    settings = kind.choose(flags);
    if (flags.resume) return;
    settings.train_options();  // checks them
    folder = std::make_unique<RunFolder>(flags.out.empty() ? settings.default_folder() : flags.out,
                                         RunStart::fresh);
  });
  const RunResult run = kind.train(ranks, folder.get(), settings, session.callbacks());
  if (!first) return;
  if (run.training.outcome == TrainOutcome::stopped)
    throw Interrupted(fmt::format(
        "stopped at step {} of {}, all is saved; resume with: topomask train {} --resume --out {}",
        run.training.step, run.training.steps, flags.kind, folder->path()));
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(run.json);
  if (flags.run.prints_text()) kind.print(folder->path(), json, run.training);
  json["folder"] = folder->path();
  if (flags.run.json) fmt::print("{}\n", json.dump());
}

// --config to --time-limit and those of ranks.
CLI::App& add_train_flags(CLI::App& train, const TrainHelp& help, TrainFlags& flags);

template <class RunSettings>
void add_train_kind(CLI::App& train, const TrainHelp& help, const Settings& settings,
                    const std::set<std::string>& but, const TrainKind<RunSettings>& kind) {
  const auto flags = std::make_shared<TrainFlags>();
  CLI::App& sub = add_train_flags(train, help, *flags);
  add_setting_options(sub, settings, flags->given, but);
  add_output_options(sub, flags->run);
  sub.callback([flags, kind] {
    check(!flags->resume || !flags->out.empty(), "--resume: expected --out with the folder of the run");
    if (flags->print_config) {
      const RunSettings chosen = kind.choose(*flags);
      chosen.train_options();  // checks them
      return fmt::print("{}", chosen.to_toml());
    }
    const auto run = [&](const RanksPtr& ranks) { run_train(*flags, kind, ranks); };
    if (flags->ranks.wanted()) return flags->ranks.run(flags->run, run);
    flags->run.apply();
    run(Ranks::alone());
  });
}

}  // namespace topomask::cli
