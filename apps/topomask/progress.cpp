#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace topomask::cli {
namespace {

constexpr auto kQuietTime = std::chrono::seconds(1);
constexpr auto kRedrawTime = std::chrono::milliseconds(100);
constexpr int kBarWidth = 30;

// "45 s", "12 min", "3.5 h"
std::string format_duration(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::atomic<bool> bar_on_screen = false;  // lock-free, so that a signal handler may read it

}  // namespace

Progress::Progress(std::string label, bool quiet)
    : label_(std::move(label)), enabled_(!quiet && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  erase_progress_line();
}

void Progress::update(std::int64_t done, std::int64_t total, const std::string& status) {
  if (!enabled_ || total <= 0) return;
  if (first_done_ < 0) first_done_ = done > 1 ? done - 1 : 0;
  const Clock::time_point now = Clock::now();
  if (now - start_ < kQuietTime || now - last_drawn_ < kRedrawTime) return;
  last_drawn_ = now;
  const double fraction = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const int filled = static_cast<int>(fraction * kBarWidth);
  const auto done_here = static_cast<double>(done - first_done_),
             remaining = static_cast<double>(total - done);
  const std::string left =
      done_here > 0 ? fmt::format("{} left", format_duration(elapsed * remaining / done_here)) : "";
  fmt::print(stderr, "\r\033[K{} [{:=<{}}{:{}}] {:3.0f}% {}{}{}", label_, "", filled, "", kBarWidth - filled,
             100 * fraction, left, status.empty() ? "" : "  ", status);
  bar_on_screen = true;
}

void erase_progress_line() {
  static constexpr char kErase[] = "\r\033[K";
  if (bar_on_screen.exchange(false)) {
    // A failed write changes nothing that could still be mended here.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kErase, sizeof(kErase) - 1);
  }
}

}  // namespace topomask::cli
