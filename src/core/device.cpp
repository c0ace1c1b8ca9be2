#include "topomask/device.h"

#include <charconv>

#include "core/check.h"

#ifdef TOPOMASK_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#endif

namespace topomask {
namespace {

int num_gpus() {
#ifdef TOPOMASK_CUDA
  return static_cast<int>(c10::cuda::device_count());  // 0 where there is no driver; never throws
#else
  return 0;
#endif
}

}  // namespace

bool cuda_is_built() {
#ifdef TOPOMASK_CUDA
  return true;
#else
  return false;
#endif
}

bool cuda_is_available() {
  return num_gpus() > 0;
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

#ifdef TOPOMASK_CUDA

void synchronise(c10::Device device) {
  if (!device.is_cuda()) return;
  const c10::cuda::CUDAGuard guard(device);
  c10::cuda::device_synchronize();
}

std::int64_t peak_memory(c10::Device device) {
  if (!device.is_cuda()) return 0;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[kAll].peak;
}

void reset_peak_memory(c10::Device device) {
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
}

std::int64_t free_memory(c10::Device device) {
  if (!device.is_cuda()) return 0;
  const c10::cuda::CUDAGuard guard(device);
  std::size_t unclaimed = 0, total = 0;
  if (cudaMemGetInfo(&unclaimed, &total) != cudaSuccess) return 0;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return static_cast<std::int64_t>(unclaimed) + stats.reserved_bytes[kAll].current -
         stats.allocated_bytes[kAll].current;
}

std::string device_name(c10::Device device) {
  if (!device.is_cuda()) return "";
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device.index());
  return status == cudaSuccess ? properties.name : "";
}

#else

void synchronise(c10::Device) {}
std::int64_t peak_memory(c10::Device) {
  return 0;
}
void reset_peak_memory(c10::Device) {}
std::int64_t free_memory(c10::Device) {
  return 0;
}
std::string device_name(c10::Device) {
  return "";
}

#endif

}  // namespace topomask
