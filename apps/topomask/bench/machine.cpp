#include "bench/machine.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

namespace topomask::cli {
namespace {

// The value of a line "name:   123 kB" in bytes, -1 without such a line.
std::int64_t read_kilobytes(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return -1;
}

}  // namespace

std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;  // Linux counts kilobytes
}

std::int64_t available_memory_bytes() {
  return read_kilobytes("/proc/meminfo", "MemAvailable");
}

PeakMemory::PeakMemory() {
  malloc_trim(0);  // else memory that was freed before would be used again unnoticed
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;  // the high-water mark falls to what is resident now
  before_ = reset ? read_kilobytes("/proc/self/status", "VmRSS") : -1;
}

std::int64_t PeakMemory::bytes() const {
  if (before_ < 0) return -1;
  return std::max<std::int64_t>(read_kilobytes("/proc/self/status", "VmHWM") - before_, 0);
}

std::string in_words(const nlohmann::ordered_json& setting) {
  std::string words;
  for (const auto& [name, value] : setting.items()) {
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", name,
                         value.is_string() ? value.get<std::string>() : value.dump());
  }
  return words;
}

}  // namespace topomask::cli
