// A training run on the terminal: progress, Ctrl-C and a limit of time as callbacks of the library.
#pragma once

#include <chrono>
#include <optional>

#include "interrupt.h"
#include "progress.h"
#include "topomask/train.h"

namespace topomask::cli {

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

}  // namespace topomask::cli
