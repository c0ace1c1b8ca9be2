// Augmentation on a GPU.
#pragma once

#include "data/augment_table.h"

namespace topomask {

struct AugmentConstants {
  at::Tensor scale, shift, fill;  // [C, 1, 1], as in Augmenter
  std::int64_t num_classes = 0;
};

// CUDA images that are small enough for the kernel.
bool augment_runs_on_cuda(const at::Tensor& images);
// The same result as the tensor operations give; `drawn` is the table on the device.
AugmentedBatch augment_cuda(const Batch& batch, const AugmentOptions& options,
                            const AugmentConstants& constants, const AugmentTable& table,
                            const at::Tensor& drawn);

}  // namespace topomask
