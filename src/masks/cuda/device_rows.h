// Rows of a sparse pattern as the kernels read them, with the long ones cut into segments. Framework-free.
#pragma once

#include <cstdint>

namespace topomask {

// A longer row would hold up the group of lanes that works on it, and with it the grid. It is cut into
// segments of at most this many entries; a second kernel adds up what they found, in their order, so that
// results never depend on how the work was spread.
constexpr int kSegmentEntries = 256;

// All pointers are on the device.
struct DeviceRows {
  std::int64_t num_rows = 0, nnz = 0;
  const std::int64_t* row_ptr = nullptr;  // [num_rows+1]
  const std::int32_t* col = nullptr;      // [nnz]
  const std::int64_t* entry = nullptr;    // [nnz] where each value stands, or null: in order
  const std::int32_t* order = nullptr;    // [num_rows] rows as they are worked on, or null: ascending

  // True where the host does not know which rows are long: one group of lanes works on each, however long it
  // is.
  bool uncut = false;
  std::int64_t num_long = 0, num_segments = 0;
  const std::int32_t* long_row = nullptr;       // [num_long] rows of more than kSegmentEntries entries
  const std::int32_t* segment_ptr = nullptr;    // [num_long+1] segments of a long row
  const std::int32_t* segment_row = nullptr;    // [num_segments]
  const std::int64_t* segment_begin = nullptr;  // [num_segments] first entry
};

}  // namespace topomask
