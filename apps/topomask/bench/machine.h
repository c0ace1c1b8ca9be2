// What a measurement should say about the machine it was made on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "topomask/device.h"  // cpu_model

namespace topomask::cli {

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

// The settings of a measurement in one line: "points 32768, k 3, ..."
std::string in_words(const nlohmann::ordered_json& setting);

}  // namespace topomask::cli
