// Sparse matrix times dense columns on a GPU, and its companion: dot products at the nonzeros.
// Framework-free, no atomics. T: float or double.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "masks/cuda/device_rows.h"

namespace topomask {

// y[h, i, :] = sum_p value[h, p] x[h, col[p], :]; x, y: [heads, N, columns]. `value_step`: from head to head,
// 0: all heads share the values. workspace: [heads, segments, columns].
template <class T>
cudaError_t spmm_on_device(const DeviceRows& matrix, const T* value, std::int64_t value_step, const T* x,
                           std::int64_t heads, std::int64_t columns, T* y, T* workspace, cudaStream_t stream);

// out[g, p] = <a[h, i, :], b[h, col[p], :]> for every nonzero p = (i, col), where g = h for out_heads =
// heads, and summed over all h for out_heads = 1.
template <class T>
cudaError_t sampled_dots_on_device(const DeviceRows& matrix, const T* a, const T* b, std::int64_t heads,
                                   std::int64_t columns, T* out, std::int64_t out_heads, cudaStream_t stream);

}  // namespace topomask
