#include "train_session.h"

namespace topomask::cli {

TrainSession::TrainSession(bool quiet, bool prints, double time_limit)
    : prints_(prints), time_limit_(time_limit), progress_("train", quiet) {}

TrainCallbacks TrainSession::callbacks() {
  TrainCallbacks callbacks;
  callbacks.started = [this](std::int64_t step, std::int64_t steps) {
    interrupts_.emplace();
    if (step > 0 && prints_) fmt::print("resuming after step {} of {}\n", step, steps);
  };
  callbacks.should_stop = [this] {
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    return InterruptScope::requested() || (time_limit_ > 0 && passed > time_limit_);
  };
  callbacks.progress = [this](std::int64_t step, std::int64_t steps, const std::string& status) {
    progress_.update(step, steps, status);
  };
  if (prints_) {
    callbacks.epoch_done = [](const std::string& line) {
      erase_progress_line();
      fmt::print("{}\n", line);
      std::fflush(stdout);
    };
  }
  return callbacks;
}

CLI::App& add_train_flags(CLI::App& train, const TrainHelp& help, TrainFlags& flags) {
  flags.kind = help.kind;
  CLI::App& sub = *train.add_subcommand(help.kind, help.about);
  sub.add_option("--config", flags.config, "TOML file of settings; the command line overrides it")
      ->type_name("FILE");
  sub.add_option("--out", flags.out,
                 fmt::format("Folder of the run (default: runs/{}-{}-seed-SEED)", help.kind, help.variant))
      ->type_name("DIR")
      ->check(not_empty);
  sub.add_flag("--resume", flags.resume,
               "Resume the run in --out; the result is that of an uninterrupted run");
  sub.add_flag("--print-config", flags.print_config,
               fmt::format("Print the settings from {} as a TOML file and exit", help.sources));
  add_time_limit(sub, flags.time_limit);
  add_training_rank_options(sub, flags.ranks);
  sub.footer(help.footer);
  return sub;
}

}  // namespace topomask::cli
