// What `topomask bench attention` says: JSON, or a table for readers.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/device_limits.h"
#include "topomask/attention.h"
#include "topomask/memory_plan.h"

namespace topomask::cli {

// A contestant in one pass.
struct BenchRow {
  std::string name;
  bool backward = false;
  std::string reason;           // not empty: why it was not run
  bool has_modulation = false;  // computes the masked attention, from f
  double setup_seconds = 0;
  std::int64_t peak_bytes = -1;      // -1: unknown
  double difference = std::nan("");  // of the output from grf-auto's, relative to its largest element
  Work work;
  std::vector<double> seconds;

  const char* pass() const { return backward ? "forward+backward" : "forward"; }
};

struct AttentionReport {
  std::vector<BenchRow> rows;
  std::vector<double> refresh;  // seconds for new values of Phi and M; empty where M is not formed
  AttentionPlan plan;
  // On a GPU: of the whole, graph and operands included, predicted beforehand and measured.
  MemoryPlan memory;
  std::string memory_source;
  std::int64_t peak_bytes = 0;
  DeviceLimits limits;
  nlohmann::ordered_json setting;

  nlohmann::ordered_json to_json() const;
  void print() const;

 private:
  double median(const std::string& name, bool backward) const;  // NaN for what was not run
  // What the table compares the others with: the first that was run, which is grf-auto unless it was left
  // out.
  std::string yardstick() const;
  nlohmann::ordered_json ratios() const;
};

}  // namespace topomask::cli
