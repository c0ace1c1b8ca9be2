// Devices to plan for by name, whether this machine has them or not (rank_plan.h): the rates of cost_model.h,
// and what a plan for ranks needs besides.
#pragma once

#include <c10/core/DeviceType.h>

#include <span>
#include <string_view>

#include "topomask/cost_model.h"

namespace topomask {

struct DeviceProfile {
  std::string_view name, description;
  c10::DeviceType type = c10::DeviceType::CPU;
  double memory = 0;   // bytes of one; 0: as much as the machine has
  double program = 0;  // bytes that a process takes before it has any data, built without CUDA for a CPU
  // Between ranks, by data sheets and not measured: bytes per second that one of them sends, seconds of a
  // message.
  double link_bandwidth = 0, link_latency = 0;

  const DeviceRates& rates() const;  // of a CPU those of this machine, of a GPU the built-in ones
};
std::span<const DeviceProfile> device_profiles();
const DeviceProfile& device_profile(std::string_view name);  // throws where there is none

}  // namespace topomask
