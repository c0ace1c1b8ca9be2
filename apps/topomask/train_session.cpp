#include "train_session.h"

#include <fmt/format.h>

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

}  // namespace topomask::cli
