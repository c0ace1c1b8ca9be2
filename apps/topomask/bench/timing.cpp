#include "bench/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "topomask/device.h"

namespace topomask::cli {

double seconds_per_call(c10::Device device, int calls, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  synchronise(device);
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  synchronise(device);
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

double seconds_per_call(c10::Device device, const std::function<void()>& call) {
  constexpr double kLong = 5e-3;
  const double first = seconds_per_call(device, 1, call);
  return device.is_cpu() || first > kLong ? first : seconds_per_call(device, 20, call);
}

void time_in_turns(c10::Device device, std::span<TimedWork> works, const std::function<void()>& after_call) {
  int most = 0;
  for (const TimedWork& work : works) most = std::max(most, work.repeats);
  for (int repeat = 0; repeat < most; ++repeat) {
    for (TimedWork& work : works) {
      if (repeat < work.repeats) work.seconds.push_back(seconds_per_call(device, work.call));
      if (after_call) after_call();
    }
  }
}

Timing summarise_times(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const std::size_t half = seconds.size() / 2;
  const double median = seconds.size() % 2 == 1 ? seconds[half] : (seconds[half - 1] + seconds[half]) / 2;
  return {median, seconds.back() - seconds.front()};
}

double log_log_slope(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() < 2) return std::nan("");
  double mean_x = 0, mean_y = 0, covariance = 0, variance = 0;
  const auto count = static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    mean_x += std::log(x[i]) / count;
    mean_y += std::log(y[i]) / count;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    covariance += (std::log(x[i]) - mean_x) * (std::log(y[i]) - mean_y);
    variance += (std::log(x[i]) - mean_x) * (std::log(x[i]) - mean_x);
  }
  return covariance / variance;
}

}  // namespace topomask::cli
