// What a measurement should say about the machine it was made on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace topomask::cli {

std::string cpu_model();           // "" where the system does not tell
std::int64_t peak_memory_bytes();  // of this process so far

// Median and range of repeated measurements.
struct Timing {
  double median = 0;
  double spread = 0;  // largest minus smallest
};
Timing summarise_times(std::vector<double> seconds);

}  // namespace topomask::cli
