#include "interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "progress.h"

namespace topomask::cli {
namespace {

std::atomic<bool> stop_requested = false;  // lock-free, so that a signal handler may write it

extern "C" void request_stop(int signal) {
  if (stop_requested.exchange(true) && signal == SIGINT) {
    erase_progress_line();
    _exit(130);
  }
}

}  // namespace

InterruptScope::InterruptScope()
    : interrupt_before_(std::signal(SIGINT, request_stop)),
      terminate_before_(std::signal(SIGTERM, request_stop)) {
  stop_requested = false;
}

InterruptScope::~InterruptScope() {
  std::signal(SIGINT, interrupt_before_);
  std::signal(SIGTERM, terminate_before_);
}

bool InterruptScope::requested() {
  return stop_requested;
}

}  // namespace topomask::cli
