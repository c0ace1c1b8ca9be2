// Work items of kernels over DeviceRows: rows, or the segments that long rows are cut into.
#pragma once

#include "masks/cuda/device_rows.h"

namespace topomask {

struct Item {
  std::int32_t row = 0;
  std::int32_t count = 0;  // entries
  std::int64_t first = 0;  // of them
  bool mine = false;       // false: beyond the last item, or a long row that is left to its segments
};

__device__ inline Item item_at(const DeviceRows& rows, std::int64_t index, bool segments) {
  Item item;
  if (index >= (segments ? rows.num_segments : rows.num_rows)) return item;
  if (segments) {
    item.row = rows.segment_row[index];
    item.first = rows.segment_begin[index];
    const std::int64_t left = rows.row_ptr[item.row + 1] - item.first;
    item.count = left < kSegmentEntries ? static_cast<std::int32_t>(left) : kSegmentEntries;
    item.mine = true;
    return item;
  }
  item.row = rows.order == nullptr ? static_cast<std::int32_t>(index) : rows.order[index];
  item.first = rows.row_ptr[item.row];
  const std::int64_t count = rows.row_ptr[item.row + 1] - item.first;
  item.mine = rows.uncut || count <= kSegmentEntries;
  item.count = item.mine ? static_cast<std::int32_t>(count) : 0;
  return item;
}

}  // namespace topomask
