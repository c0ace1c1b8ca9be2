// The sums of cpu/ring_sums.h on a GPU: pointers are the device's, but for radius and bandwidth.
// Framework-free; no atomics: every sum has one order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "particles/cpu/ring_sums.h"

namespace topomask::cuda {

// out: [P, R, F + 1]
template <class T>
cudaError_t ring_sums(const RingSums<T>& sums, T* out, cudaStream_t stream);

// Bytes that a backward pass works in.
template <class T>
std::size_t ring_sums_workspace(const RingSums<T>& sums);

template <class T>
cudaError_t ring_sums_backward(const RingSums<T>& sums, const T* out, const T* grad, T* grad_position,
                               T* grad_feature, void* workspace, cudaStream_t stream);

}  // namespace topomask::cuda
