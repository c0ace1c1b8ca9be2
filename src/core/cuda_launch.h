// The torch side of a CUDA kernel: its device, its stream and its status. Only for sources that are built
// with CUDA.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace topomask {

// Makes the tensor's device current for as long as it lives; `stream` is torch's current one there.
struct CudaLaunch {
  explicit CudaLaunch(const at::Tensor& x) : guard(x.device()), stream(c10::cuda::getCurrentCUDAStream()) {}

  c10::cuda::CUDAGuard guard;
  cudaStream_t stream;
};

// A kernel's status is never the caller's mistake: shapes were checked before. Hence not topomask::Error.
inline void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// Uninitialised memory on the device of a tensor.
inline at::Tensor bytes_on(const at::Tensor& like, std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)}, like.options().dtype(at::kByte));
}

}  // namespace topomask
