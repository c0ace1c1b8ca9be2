// Rows of a sparse pattern as the kernels read them: the long ones cut into segments, the others also in
// tiles that share their columns. Framework-free.
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

// A tile is kTileRows rows that are worked on one after another. Its columns, each once and ascending, come
// in steps of kTileColumns. Rows of more than kSegmentEntries entries have none here.
constexpr int kTileRows = 32, kTileColumns = 16;

// A pattern of more entries has no tiles: their lists and records would take too much memory.
constexpr std::int64_t kMostTiledEntries = std::int64_t{1} << 29;
// Features, and columns of values, that the kernels on tiles have room for (attention/cuda/tile_attention.h).
constexpr std::int64_t kMostTiledChannels = 64;
// Bytes of the lists, and of what a call keeps of every value.
constexpr double kTileBytesOfEntry = 4 + 4.0 / kTileColumns + 6, kTileBytesOfNode = 2.5, kTileRecordBytes = 8;

// Step s of tile t stands at first_entry[t] / kTileColumns + t + s: a tile has at most as many columns as
// entries, so this leaves room for all of them before anybody has counted them.
struct RowTiles {
  std::int64_t num_tiles = 0;
  const std::int32_t* order = nullptr;        // [num_rows] rows as tiles take them, or null: ascending
  const std::int64_t* first_entry = nullptr;  // [num_tiles+1]
  const std::int32_t* num_steps = nullptr;    // [num_tiles]
  const std::int32_t* column = nullptr;       // [steps, kTileColumns]; the last step repeats the last column
  const std::int32_t* step_first = nullptr;   // [steps] its first entry, counted from that of the tile
  // Of every entry, tile by tile and step by step:
  const std::uint16_t* place = nullptr;  // [nnz] where it stands in its step, see tile_place
  const std::int32_t* entry = nullptr;   // [nnz] where its value stands
};

}  // namespace topomask
