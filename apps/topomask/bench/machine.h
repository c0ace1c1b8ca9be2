// What a measurement should say about the machine it was made on.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace topomask::cli {

std::string cpu_model();           // "" where the system does not tell
std::int64_t peak_memory_bytes();  // of this process so far

std::int64_t available_memory_bytes();  // that the system could still give

// Memory that becomes resident during a piece of work, on top of what was there when the object was made. The
// system counts it (VmHWM of /proc/self/status), so memory from any allocator is included.
class PeakMemory {
 public:
  PeakMemory();
  std::int64_t bytes() const;  // -1 where the system cannot tell

 private:
  std::int64_t before_;
};

// Seconds of one of `calls` calls, which the device is given before it is waited for.
double seconds_per_call(c10::Device device, int calls, const std::function<void()>& call);

// Median and range of repeated measurements.
struct Timing {
  double median = 0;
  double spread = 0;  // largest minus smallest
};
Timing summarise_times(std::vector<double> seconds);

// Least-squares slope of log y against log x: the exponent of a power law. NaN for fewer than two points.
double log_log_slope(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace topomask::cli
