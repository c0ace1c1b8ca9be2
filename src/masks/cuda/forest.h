// exp(a dist(i, j)) on a forest, on a GPU: the two passes of masks/cpu/forest.h, level by level.
// Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask {

// Positions run over the levels, roots first; the children of a position stand together. Pointers are on the
// device unless they say otherwise.
struct DeviceForest {
  std::int64_t num_nodes = 0, num_levels = 0;
  const std::int32_t* node = nullptr;            // [N] position -> node
  const std::int32_t* child_begin = nullptr;     // [N] positions of the children
  const std::int32_t* child_end = nullptr;       // [N]
  const float* length = nullptr;                 // [N] of the edge to the parent
  const std::int32_t* level_ptr = nullptr;       // [levels + 1]
  const std::int32_t* host_level_ptr = nullptr;  // the same on the host
};

// y_h = E_h x_h, E_ij = exp(a_h dist(i, j)) within a tree. Where `derivative` is not null, also (dE_h/da)
// x_h.
template <class T>
struct DeviceForestProduct {
  std::int64_t heads = 0, columns = 0, size = 0;  // size: heads * N * columns
  const T* a = nullptr;                           // [heads]
  const T* x = nullptr;                           // [heads, N, columns]
  T* y = nullptr;                                 // like x
  T* derivative = nullptr;                        // like x, or null
  T* workspace = nullptr;                         // [2, size], [4, size] with a derivative
};
template <class T>
cudaError_t forest_product_on_device(const DeviceForest& forest, const DeviceForestProduct<T>& product,
                                     cudaStream_t stream);

}  // namespace topomask
