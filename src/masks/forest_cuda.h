// The forest mask on a GPU. Only for sources that are built with CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "masks/cpu/forest.h"
#include "masks/cuda/forest.h"

namespace topomask {

struct ForestOnDevice {
  at::Tensor node, child_begin, child_end, level_ptr;  // int32
  at::Tensor length;                                   // float32
  std::vector<std::int32_t> host_level_ptr;
  DeviceForest view;  // pointers into them
};

std::shared_ptr<const ForestOnDevice> forest_on_device(const RootedForest& forest, c10::Device device);

// As forest_product; derivative may be undefined. All tensors contiguous, [H] and [H, N, C].
void forest_product_on_gpu(const ForestOnDevice& forest, const at::Tensor& a, const at::Tensor& x,
                           const at::Tensor& y, const at::Tensor& derivative);

}  // namespace topomask
