// Where a run stands, apart from its tensors: what a checkpoint's metadata says.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "topomask/train.h"

namespace topomask {

// Sums over steps, for means. Not every step has an accuracy, or the loss parts.
struct StepSums {
  double loss = 0, accuracy = 0;
  std::int64_t steps = 0, scored = 0, divided = 0;
  std::vector<double> parts;

  double mean_loss() const { return steps == 0 ? 0 : loss / static_cast<double>(steps); }
  double mean_accuracy() const { return accuracy / static_cast<double>(scored); }
  double mean_part(std::size_t i) const { return parts[i] / static_cast<double>(divided); }
};

struct RunState {
  std::int64_t step = 0;     // done
  std::int64_t steps = 0;    // of the schedule
  StepSums epoch, interval;  // since the epoch began, since the last line of metrics
  Evaluation last, best;
  std::int64_t best_epoch = 0;  // 0: none evaluated yet
  double seconds = 0;

  // Numbers come back as they were, to the last bit; what is not finite comes back as NaN.
  std::string to_json() const;
  static RunState from_json(const std::string& text, const std::string& path);
};

}  // namespace topomask
