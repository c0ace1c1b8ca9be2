// exp(a dist(i, j)) on a forest, on a GPU: the two passes of masks/cpu/forest.h, level by level.
// Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask {

// Positions run over the levels, roots first; the children of a position stand together. All pointers but
// those of the struct itself are on the device.
struct DeviceForest {
  std::int64_t num_nodes = 0, num_levels = 0;
  const std::int32_t* node = nullptr;         // [N] position -> node
  const std::int32_t* child_begin = nullptr;  // [N] positions of the children
  const std::int32_t* child_end = nullptr;    // [N]
  const float* length = nullptr;              // [N] of the edge to the parent
  const std::int32_t* level_ptr = nullptr;    // [levels + 1]
};

// y_h = E_h x_h, E_ij = exp(a_h dist(i, j)) within a tree; x, y: [heads, N, columns], a: [heads]. Where
// `derivative` is not null, also (dE_h/da) x_h. workspace: twice the size of x, or four times with a
// derivative.
template <class T>
cudaError_t forest_product_on_device(const DeviceForest& forest, const T* a, std::int64_t heads,
                                     std::int64_t columns, const T* x, T* y, T* derivative, T* workspace,
                                     cudaStream_t stream);

}  // namespace topomask
