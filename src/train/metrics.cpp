#include "train/metrics.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/check.h"
#include "io/files.h"

namespace topomask {

namespace {

void write_text(const std::string& path, const std::string& text, std::ios::openmode mode) {
  errno = 0;
  std::ofstream file(path, mode | std::ios::binary);
  file << text << std::flush;
  check(file.good(), "{}: cannot be written ({})", path, errno == 0 ? "unknown error" : std::strerror(errno));
}

}  // namespace

void MetricsFile::clear() const {
  write_text(path_, "", std::ios::trunc);
}

void MetricsFile::keep_until(std::int64_t step) const {
  std::ifstream file(path_);
  std::string kept, line;
  while (std::getline(file, line)) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A run that was killed may have left half a line.
    if (json.is_object() && json.value("step", std::int64_t{0}) <= step) kept += line + "\n";
  }
  file.close();
  write_file(path_, kept);
}

void MetricsFile::append(const nlohmann::ordered_json& line) const {
  write_text(path_, line.dump() + "\n", std::ios::app);
}

}  // namespace topomask
