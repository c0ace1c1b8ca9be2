// The heat kernel of the hypercube on a GPU (masks/cpu/hypercube.h). Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask {

// exp(-t (D - A)) in place on values [heads, 2^dimension, columns]; t: [heads] on the device.
template <class T>
cudaError_t hypercube_heat_on_device(int dimension, const T* t, std::int64_t heads, std::int64_t columns,
                                     T* values, cudaStream_t stream);

// out = (D - A) z; both [heads, 2^dimension, columns].
template <class T>
cudaError_t hypercube_laplacian_on_device(int dimension, std::int64_t heads, std::int64_t columns, const T* z,
                                          T* out, cudaStream_t stream);

}  // namespace topomask
