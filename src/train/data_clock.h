// How long a step waits for its data.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <cstddef>
#include <vector>

namespace topomask {

// On a CPU the time that passes between start() and stop(). On a GPU the time that passes on its stream
// between the two: what the host prepares while the device is still busy costs nothing, a device that waits
// for its next batch does.
class DataClock {
 public:
  explicit DataClock(c10::Device device) : device_(device) {}

  void start();
  void stop();
  // Of all pairs since the last call. Waits for the device.
  double take_seconds();

 private:
  struct Interval {
    c10::Event start, stop;
  };
  void add_intervals();

  c10::Device device_;
  std::chrono::steady_clock::time_point started_;
  std::vector<Interval> intervals_;  // events are made once and used again
  std::size_t used_ = 0;             // intervals whose time has not been added yet
  double seconds_ = 0;
};

}  // namespace topomask
