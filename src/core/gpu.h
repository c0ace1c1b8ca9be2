// The GPUs of this machine. Each room declares what it does on a GPU in a gpu.h of its own: its *_cuda.cpp
// files define that, and a build without CUDA links gpu_stubs.cpp instead. Callers ask x.is_cuda() and call.
#pragma once

#include "core/check.h"

namespace topomask {

int num_gpus();  // 0 where there is no driver, or no CUDA in this build

[[noreturn]] inline void fail_without_cuda() {
  fail("this topomask was built without CUDA: expected tensors on the CPU, got some on a GPU");
}

}  // namespace topomask
