// The GPUs of this machine. Each folder declares what it does on a GPU in its own gpu.h: its *_cuda.cpp files
// define that, and a build without CUDA links gpu_stubs.cpp instead. Callers ask x.is_cuda() and call.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "core/check.h"

namespace topomask {

int num_gpus();  // 0 where there is no driver, or no CUDA in this build

// The same for all processes that see one GPU, whatever number it has for them; other GPUs have others.
std::string gpu_identity(c10::Device device);

// Nonzero while the current stream of a GPU is captured into a CUDA graph, and another number for every
// capture. The host cannot wait for the device then, and what is computed exists only when the graph is
// replayed.
std::uint64_t capture_id(c10::Device device);

[[noreturn]] inline void fail_without_cuda() {
  fail("this topomask was built without CUDA: expected tensors on the CPU, got some on a GPU");
}

}  // namespace topomask
