// What is derived from a SparsePattern at its first use, and kept.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

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

  // How a GPU shares the columns of this pattern and of another among its blocks (attention/cuda/
  // column_attention.h); all int32.
  struct ColumnLists {
    std::weak_ptr<const Derived> keys;  // of the other pattern
    bool narrow = false;                // whether columns with few keys have lists of their own
    at::Tensor tile_column, tile_first, whole, hub, key_chunk_ptr, key_chunk_hub, row_chunk_ptr,
        row_chunk_hub;
    std::int64_t narrow_pairs = 0, wide_entries = 0;  // what there is to multiply
  };

  // Tiles of rows on a GPU (masks/cuda/row_tiles.h); all undefined where they would not pay.
  struct Tiles {
    bool asked = false, known = false;    // the second to ask for them has them made
    at::Tensor order;                     // [N] int32, or undefined: rows as tiles take them
    at::Tensor first_entry;               // [tiles + 1] int64
    at::Tensor num_steps, column;         // int32
    at::Tensor step_first, place, entry;  // int32, int16 and int32
  };

  std::mutex mutex;
  // The CUDA graph during whose capture they were made (core/gpu.h); only it can use them. 0: none.
  std::uint64_t capture = 0;
  at::Tensor transposed_ptr, transposed_row, transposed_entry;  // where the pattern came without
  LongRows rows, columns;
  Tiles tiles;
  std::vector<std::shared_ptr<const ColumnLists>> column_lists;
  at::Tensor position;    // [nnz] int64: i N + j of each entry
  double far_share = -1;  // as MaskProfile has it
};

}  // namespace topomask
