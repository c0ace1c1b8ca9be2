// A progress bar on stderr: only on a terminal, and only once something has taken longer than a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace topomask::cli {

class Progress {
 public:
  Progress(std::string label, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `status` stands behind the time that is left.
  void update(std::int64_t done, std::int64_t total, const std::string& status = "");

 private:
  using Clock = std::chrono::steady_clock;
  std::string label_;
  bool enabled_;
  Clock::time_point start_ = Clock::now(), last_drawn_ = start_;
  std::int64_t first_done_ = -1;  // at the first update: resumed work does not begin at 0
};

// Removes a bar that is on the screen; safe to call from a signal handler.
void erase_progress_line();

}  // namespace topomask::cli
