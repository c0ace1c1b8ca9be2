// How tiles of rows are made (RowTiles in device_rows.h). Framework-free.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "masks/cuda/device_rows.h"

namespace topomask {

// The numbers of a step [kTileRows, kTileColumns], each lane's own in the order in which the accumulators of
// mma.m16n8k16 hold them, four at a time: [4 blocks of 16 x 8, 32 lanes, 4].
__host__ __device__ constexpr int tile_place(int row, int column) {
  const int block = row / 16 * 2 + column / 8, lane = row % 8 * 4 + column % 8 / 2;
  return (block * 32 + lane) * 4 + row % 16 / 8 * 2 + column % 2;
}

// A number for each row, [num_rows], by which rows that share columns stand together if they are sorted. It
// is the least hash of a column of the row, behind that of the rows which these columns are, and of theirs:
// rows of one neighbourhood mostly meet in the same least one. scratch: room for 3 num_rows numbers.
cudaError_t neighbourhood_keys(const DeviceRows& rows, std::uint32_t* scratch, std::int64_t* key,
                               cudaStream_t stream);

struct RowTilesResult {
  std::int32_t *num_steps = nullptr, *column = nullptr, *step_first = nullptr;
  std::uint16_t* place = nullptr;
  std::int32_t* entry = nullptr;
};
// largest_tile: entries of the fullest tile, or more.
cudaError_t make_row_tiles(const DeviceRows& rows, const std::int64_t* first_entry, std::int64_t largest_tile,
                           const RowTilesResult& result, cudaStream_t stream);

}  // namespace topomask
