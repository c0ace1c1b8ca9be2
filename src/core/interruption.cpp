#include "core/interruption.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>

namespace topomask {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kBetween(50);

std::atomic<InterruptionHook> current_hook = nullptr;
std::thread::id watching_thread;  // set before the hook
Clock::time_point next_call;      // used by that thread alone
std::exception_ptr reason;        // written by that thread before `stopping`
std::atomic<bool> stopping = false;

}  // namespace

void set_interruption_hook(InterruptionHook hook) {
  watching_thread = std::this_thread::get_id();
  current_hook = hook;
}

void poll_interruption() {
  const InterruptionHook hook = current_hook.load(std::memory_order_acquire);
  if (hook == nullptr) return;
  if (std::this_thread::get_id() != watching_thread) {
    if (stopping.load(std::memory_order_acquire)) throw std::runtime_error("interrupted");
    return;
  }
  const Clock::time_point now = Clock::now();
  if (now < next_call) return;
  next_call = now + kBetween;
  try {
    hook();
  } catch (...) {
    reason = std::current_exception();
    stopping.store(true, std::memory_order_release);
    throw;
  }
}

void rethrow_reason() {
  if (!stopping || std::this_thread::get_id() != watching_thread) throw;
  stopping = false;
  std::rethrow_exception(std::exchange(reason, nullptr));
}

}  // namespace topomask
