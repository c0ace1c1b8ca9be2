#include "masks/cuda/row_tiles.h"

#include "core/cuda/grid.h"
#include "core/cuda/team.cuh"

namespace topomask {

namespace {

constexpr int kThreads = 128;

// One block per tile: sorts its entries by column and numbers the columns.
__global__ void __launch_bounds__(kThreads)
    tiles_by_block(const __grid_constant__ DeviceRows rows, const std::int64_t* first_entry, int room,
                   const __grid_constant__ RowTilesResult result) {
  extern __shared__ std::uint32_t shared[];
  __shared__ int partial[kWarpSize], offset[kTileRows];
  __shared__ std::int64_t first_of_row[kTileRows];
  std::uint32_t *const columns = shared, *const sources = shared + room;
  const BlockTeam team{partial};
  const std::int64_t tile = blockIdx.x, first = first_entry[tile], first_step = first / kTileColumns + tile;
  const auto count = static_cast<int>(first_entry[tile + 1] - first);
  const int lane = team.rank() % kWarpSize, warp = team.rank() / kWarpSize;

  if (team.rank() < kTileRows) {
    const std::int64_t position = tile * kTileRows + lane;
    int length = 0;
    first_of_row[lane] = 0;
    if (position < rows.num_rows) {
      const std::int64_t row = rows.order == nullptr ? position : rows.order[position];
      first_of_row[lane] = rows.row_ptr[row];
      const std::int64_t all = rows.row_ptr[row + 1] - rows.row_ptr[row];
      length = all <= kSegmentEntries ? static_cast<int>(all) : 0;
    }
    offset[lane] = running_sum_of_lanes(length) - length;
  }
  team.sync();
  for (int row = warp; row < kTileRows; row += kThreads / kWarpSize) {
    const int end = row + 1 < kTileRows ? offset[row + 1] : count;
    for (int i = offset[row] + lane; i < end; i += kWarpSize) {
      const int within = i - offset[row];
      columns[i] = static_cast<std::uint32_t>(rows.col[first_of_row[row] + within]);
      sources[i] = static_cast<std::uint32_t>(row * kSegmentEntries + within);
    }
  }
  team.sync();
  team_sort(team, columns, sources, count);

  int found = 0;  // columns so far
  for (int base = 0; base < count; base += team.size()) {
    const int i = base + team.rank();
    const bool is_new = i < count && (i == 0 || columns[i] != columns[i - 1]);
    int total;
    const int slot = found + team.exclusive_count(is_new, total) + (is_new ? 1 : 0) - 1;
    found += total;
    if (i >= count) continue;
    if (is_new) {
      result.column[first_step * kTileColumns + slot] = static_cast<std::int32_t>(columns[i]);
      if (slot % kTileColumns == 0) result.step_first[first_step + slot / kTileColumns] = i;
    }
    const auto row = static_cast<int>(sources[i] / kSegmentEntries),
               within = static_cast<int>(sources[i] % kSegmentEntries);
    result.place[first + i] = static_cast<std::uint16_t>(tile_place(row, slot % kTileColumns));
    result.entry[first + i] = static_cast<std::int32_t>(first_of_row[row] + within);
  }
  const int steps = (found + kTileColumns - 1) / kTileColumns;
  for (int slot = found + team.rank(); slot < steps * kTileColumns; slot += team.size())
    result.column[first_step * kTileColumns + slot] = static_cast<std::int32_t>(columns[count - 1]);
  if (team.rank() == 0) result.num_steps[tile] = steps;
}

__device__ std::uint32_t hash_of(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) * 0x846ca68bu;
  return x ^ x >> 16;
}

constexpr int kKeyThreads = 256, kLanesPerRow = 8;

// result[i] = the least of x[j] over the first columns j of row i, or of their hashes where x is null. Rows
// of more than kSegmentEntries are in no tile. Nobody has checked columns that were given on a GPU
// (SparsePattern::from_rows): one without a row counts by its hash.
__global__ void __launch_bounds__(kKeyThreads)
    least_of_columns(const __grid_constant__ DeviceRows rows, const std::uint32_t* x, std::uint32_t* result) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x,
                     row = thread / kLanesPerRow;
  std::uint32_t least = ~0u;
  if (row < rows.num_rows) {
    const std::int64_t begin = rows.row_ptr[row], end = min(rows.row_ptr[row + 1], begin + kSegmentEntries);
    for (std::int64_t e = begin + thread % kLanesPerRow; e < end; e += kLanesPerRow) {
      const auto column = static_cast<std::uint32_t>(rows.col[e]);
      least = min(least, x == nullptr || column >= rows.num_rows ? hash_of(column) : x[column]);
    }
  }
  least = min_lanes<kLanesPerRow>(least);
  if (row < rows.num_rows && thread % kLanesPerRow == 0) result[row] = least;
}

__global__ void __launch_bounds__(kKeyThreads)
    join_keys(std::int64_t count, const std::uint32_t* least, std::int64_t* key) {
  constexpr int kBits = 21;  // of each
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x;
  if (i >= count) return;
  std::int64_t joined = 0;
  for (int pass = 2; pass >= 0; --pass) joined = joined << kBits | least[pass * count + i] >> (32 - kBits);
  key[i] = joined;
}

}  // namespace

cudaError_t neighbourhood_keys(const DeviceRows& rows, std::uint32_t* scratch, std::int64_t* key,
                               cudaStream_t stream) {
  const std::int64_t n = rows.num_rows;
  if (n == 0) return cudaSuccess;
  for (int pass = 0; pass < 3; ++pass) {
    const std::uint32_t* const before = pass == 0 ? nullptr : scratch + (pass - 1) * n;
    least_of_columns<<<blocks_for(n * kLanesPerRow, kKeyThreads), kKeyThreads, 0, stream>>>(
        rows, before, scratch + pass * n);
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;
  }
  join_keys<<<blocks_for(n, kKeyThreads), kKeyThreads, 0, stream>>>(n, scratch, key);
  return cudaGetLastError();
}

cudaError_t make_row_tiles(const DeviceRows& rows, const std::int64_t* first_entry, std::int64_t largest_tile,
                           const RowTilesResult& result, cudaStream_t stream) {
  const std::int64_t tiles = (rows.num_rows + kTileRows - 1) / kTileRows;
  if (tiles == 0) return cudaSuccess;
  const int room = next_power_of_two(static_cast<int>(largest_tile));
  const int bytes = 2 * room * static_cast<int>(sizeof(std::uint32_t));
  const cudaError_t status =
      cudaFuncSetAttribute(tiles_by_block, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (status != cudaSuccess) return status;
  tiles_by_block<<<static_cast<unsigned>(tiles), kThreads, bytes, stream>>>(rows, first_entry, room, result);
  return cudaGetLastError();
}

}  // namespace topomask
