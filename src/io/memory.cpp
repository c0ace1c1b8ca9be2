#include "io/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "io/text.h"

namespace topomask {

namespace {

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

// The number after `key` at the start of a line; the first word of the file if the key is empty.
std::optional<std::uint64_t> read_number(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    WordReader words(std::string_view(line).substr(key.size()));
    std::string_view word;
    const std::optional<std::int64_t> number = words.next(word) ? parse_integer(word) : std::nullopt;
    if (number && *number >= 0) return static_cast<std::uint64_t>(*number);
    return std::nullopt;
  }
  return std::nullopt;
}

// The folder of this process's control group, "" if there is none (or only one of the old kind).
std::string control_group() {
  constexpr std::string_view kUnified = "0::";
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with(kUnified)) return "/sys/fs/cgroup" + line.substr(kUnified.size());
  }
  return "";
}

std::uint64_t left_in_control_group() {
  const std::string group = control_group();
  const std::optional<std::uint64_t> limit = read_number(group + "/memory.max", "");  // or the word "max"
  const std::optional<std::uint64_t> used = read_number(group + "/memory.current", "");
  if (!limit || !used) return kUnknown;
  // Pages of files that were read are given back when they are needed.
  const std::uint64_t cached = read_number(group + "/memory.stat", "inactive_file ").value_or(0);
  const std::uint64_t taken = *used - std::min(cached, *used);
  return *limit - std::min(taken, *limit);
}

}  // namespace

std::uint64_t available_memory() {
  const std::optional<std::uint64_t> kilobytes = read_number("/proc/meminfo", "MemAvailable:");
  return std::min(kilobytes ? *kilobytes * 1024 : kUnknown, left_in_control_group());
}

}  // namespace topomask
