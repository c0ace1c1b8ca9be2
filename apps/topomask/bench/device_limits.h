// What a device does at best, measured where the benchmark runs: a yardstick for its figures.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>

#include "topomask/features.h"

namespace topomask::cli {

// What a piece of work amounts to; NaN where that is not known.
struct Work {
  double bytes = std::nan("");  // that have to be moved, each once: a floor
  double flops = std::nan("");  // really done
};

double bytes_of(std::initializer_list<at::Tensor> tensors);
double bytes_of(const WalkFeatures& features);

struct DeviceLimits {
  double bytes_per_second = 0;  // of a copy, read and written
  double flops_per_second = 0;  // of a product of large matrices

  nlohmann::ordered_json to_json() const;
  std::string to_string(const std::string& dtype) const;  // the name of the matrices' type
  // How near work that took so long came to the limits: "bytes", "flops", and the two shares of what is
  // known.
  void add_to(nlohmann::ordered_json& result, const Work& work, double seconds) const;
  std::string bytes_share(const Work& work, double seconds) const;  // "12.3 %", "" if unknown
  std::string flops_share(const Work& work, double seconds) const;
};

// Copies an array that no cache holds, and multiplies matrices of `dtype`; a tenth of a second.
DeviceLimits measure_limits(c10::Device device, at::ScalarType dtype);

}  // namespace topomask::cli
