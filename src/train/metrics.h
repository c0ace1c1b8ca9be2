// metrics.jsonl: one JSON object per line, each with the step it belongs to.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace topomask {

class MetricsFile {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}

  void clear() const;
  // Drops what came after `step`: a resumed run repeats those steps.
  void keep_until(std::int64_t step) const;
  void append(const nlohmann::ordered_json& line) const;

 private:
  std::string path_;
};

}  // namespace topomask
