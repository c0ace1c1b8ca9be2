// Mean and standard error of a few independent numbers: one for each seed.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

namespace topomask {

struct Sample {
  std::vector<double> values;

  double mean() const {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  }
  // Of the mean; null for a single number.
  nlohmann::ordered_json standard_error() const {
    if (values.size() < 2) return nullptr;
    const double centre = mean();
    double sum = 0;
    for (const double value : values) sum += (value - centre) * (value - centre);
    const auto n = static_cast<double>(values.size());
    return std::sqrt(sum / (n - 1) / n);
  }
};

}  // namespace topomask
