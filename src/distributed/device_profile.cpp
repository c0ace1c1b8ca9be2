#include "topomask/device_profile.h"

#include <vector>

#include "topomask/words.h"

namespace topomask {
namespace {

constexpr DeviceProfile kProfiles[] = {
    {.name = "cpu",
     .description = "cores like those of this machine, 10 Gbit/s Ethernet between ranks",
     .type = c10::DeviceType::CPU,
     .memory = 0,
     .program = 95e6,
     .link_bandwidth = 1.25e9,
     .link_latency = 50e-6},
    {.name = "h200",
     .description = "one NVIDIA H200 per rank, 400 Gbit/s InfiniBand for each",
     .type = c10::DeviceType::CUDA,
     .memory = 141e9,
     .program = 700e6,
     .link_bandwidth = 50e9,
     .link_latency = 5e-6},
};

}  // namespace

const DeviceRates& DeviceProfile::rates() const {
  return type == c10::DeviceType::CPU ? rates_of(c10::kCPU) : DeviceRates::built_in(type);
}

std::span<const DeviceProfile> device_profiles() {
  return kProfiles;
}

const DeviceProfile& device_profile(std::string_view name) {
  std::vector<std::string_view> known;
  for (const DeviceProfile& profile : kProfiles) {
    if (profile.name == name) return profile;
    known.push_back(profile.name);
  }
  fail_unknown_word("device", name, known);
}

}  // namespace topomask
