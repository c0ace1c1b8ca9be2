// Tables over keys of a byte on a GPU (masks/cpu/distances.h). Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask {

// out[h, e] = table[h, key[e]] for `count` keys below `size`.
template <class T>
cudaError_t look_up_on_device(const std::uint8_t* key, std::int64_t count, const T* table, std::int64_t heads,
                              std::int64_t size, T* out, cudaStream_t stream);

// Runs of keys whose sums are kept apart until the end: `partial` is [runs, heads, size].
std::int64_t look_up_runs(std::int64_t count);

// The gradient of the table. No atomics: the sums are the same every time.
template <class T>
cudaError_t look_up_backward_on_device(const std::uint8_t* key, std::int64_t count, const T* grad_out,
                                       std::int64_t heads, std::int64_t size, double* partial, T* grad_table,
                                       cudaStream_t stream);

}  // namespace topomask
