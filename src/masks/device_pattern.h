// A SparsePattern on a GPU, as its kernels read it. Only for sources that are built with CUDA.
#pragma once

#include "masks/cuda/device_rows.h"
#include "topomask/mask.h"

namespace topomask {

// The transpose, computed once if the pattern came without.
struct TransposedPattern {
  at::Tensor ptr, row, entry;  // as in SparsePattern
};
TransposedPattern transpose_of(const SparsePattern& pattern);

// Pointers into the pattern and into what it derives: they live as long as it does.
DeviceRows device_rows(const SparsePattern& pattern);
DeviceRows device_columns(const SparsePattern& pattern);  // rows of the transpose

}  // namespace topomask
