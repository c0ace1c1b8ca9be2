#include "topomask/device.h"

#include <charconv>
#include <fstream>

#include "core/check.h"
#include "core/gpu.h"

namespace topomask {

bool cuda_is_available() {
  return num_gpus() > 0;
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

c10::Device parse_device(const std::string& word) {
  if (word == "cpu") return c10::kCPU;
  int index = 0;
  const bool numbered = word.starts_with("cuda:");
  if (numbered) {
    const char* end = word.data() + word.size();
    const auto [stop, status] = std::from_chars(word.data() + 5, end, index);
    check(status == std::errc() && stop == end && index >= 0, "device '{}': expected cpu, cuda or cuda:0",
          word);
  } else {
    check(word == "cuda", "device '{}': expected cpu, cuda or cuda:0", word);
  }
  check(cuda_is_built(), "device '{}': this topomask was built without CUDA; only cpu is available", word);
  check(cuda_is_available(), "device '{}': no GPU was found on this machine; only cpu is available", word);
  check(index < num_gpus(), "device '{}': this machine has {} GPU(s), numbered from 0", word, num_gpus());
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace topomask
