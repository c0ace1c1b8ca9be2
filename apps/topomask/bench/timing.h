// How things are timed, by `bench` and `demo` alike.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <functional>
#include <span>
#include <vector>

namespace topomask::cli {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start);

// Seconds of one of `calls` calls, which the device is given before it is waited for.
double seconds_per_call(c10::Device device, int calls, const std::function<void()>& call);
// A GPU is given several calls before it is waited for, as a model would, unless they are long.
double seconds_per_call(c10::Device device, const std::function<void()>& call);

struct TimedWork {
  std::function<void()> call;
  int repeats = 0;
  std::vector<double> seconds = {};  // of a call, one for each repeat
};
// Steady state: each piece of work should have run once before, so that memory and one-time set-up are done.
// They run in turns, so that a change of the machine's speed affects all. `after_call` may be empty.
void time_in_turns(c10::Device device, std::span<TimedWork> works,
                   const std::function<void()>& after_call = {});

// Median and range of repeated measurements.
struct Timing {
  double median = 0;
  double spread = 0;  // largest minus smallest
};
Timing summarise_times(std::vector<double> seconds);

// Least-squares slope of log y against log x: the exponent of a power law. NaN for fewer than two points.
double log_log_slope(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace topomask::cli
