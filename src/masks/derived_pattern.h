// What is derived from a SparsePattern at its first use, and kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <mutex>

#include "topomask/mask.h"

namespace topomask {

struct SparsePattern::Derived {
  // The rows that a GPU cuts into segments (masks/cuda/device_rows.h); all undefined where there are none.
  struct LongRows {
    bool known = false;
    at::Tensor row;            // [long rows] int32
    at::Tensor segment_ptr;    // [long rows + 1] int32
    at::Tensor segment_row;    // [segments] int32
    at::Tensor segment_begin;  // [segments] int64
  };

  std::mutex mutex;
  // The CUDA graph that was being captured when they were made (core/gpu.h), or 0: nobody else can use them.
  std::uint64_t capture = 0;
  at::Tensor transposed_ptr, transposed_row, transposed_entry;  // where the pattern came without
  LongRows rows, columns;
  at::Tensor position;    // [nnz] int64: i N + j of each entry
  double far_share = -1;  // as MaskProfile has it
};

}  // namespace topomask
