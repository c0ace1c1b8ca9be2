#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "core/gpu.h"
#include "topomask/device.h"

namespace topomask {

int num_gpus() {
  return static_cast<int>(c10::cuda::device_count());  // never throws
}

std::uint64_t capture_id(c10::Device device) {
  if (!device.is_cuda()) return 0;
  const c10::cuda::CUDAGuard guard(device);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  if (cudaStreamGetCaptureInfo(c10::cuda::getCurrentCUDAStream(), &status, &id) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // the legacy stream, while another one is captured
    return 0;
  }
  return status == cudaStreamCaptureStatusNone ? 0 : id + 1;
}

namespace {

// "cuda" alone is the current device.
c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

// Torch's allocator knows no device before the first tensor is allocated.
c10::CachingDeviceAllocator::DeviceStats memory_of(c10::Device device) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return c10::cuda::CUDACachingAllocator::getDeviceStats(index_of(device));
}

constexpr auto kAllMemory = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

}  // namespace

std::string gpu_identity(c10::Device device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, index_of(device));
  check(status == cudaSuccess, "device '{}': {}", device.str(), cudaGetErrorString(status));
  return {properties.uuid.bytes, sizeof(properties.uuid.bytes)};
}

bool cuda_is_built() {
  return true;
}

void synchronise(c10::Device device) {
  if (!device.is_cuda()) return;
  const c10::cuda::CUDAGuard guard(device);
  c10::cuda::device_synchronize();
}

std::int64_t peak_memory(c10::Device device) {
  return device.is_cuda() ? memory_of(device).allocated_bytes[kAllMemory].peak : 0;
}

void reset_peak_memory(c10::Device device) {
  if (!device.is_cuda()) return;
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  c10::cuda::CUDACachingAllocator::resetPeakStats(index_of(device));
}

std::int64_t free_memory(c10::Device device) {
  if (!device.is_cuda() || num_gpus() == 0) return 0;
  const c10::cuda::CUDAGuard guard(device);
  std::size_t unclaimed = 0, total = 0;
  if (cudaMemGetInfo(&unclaimed, &total) != cudaSuccess) return 0;
  const auto stats = memory_of(device);
  return static_cast<std::int64_t>(unclaimed) + stats.reserved_bytes[kAllMemory].current -
         stats.allocated_bytes[kAllMemory].current;
}

std::string device_name(c10::Device device) {
  if (!device.is_cuda()) return "";
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, index_of(device));
  return status == cudaSuccess ? properties.name : "";
}

}  // namespace topomask
