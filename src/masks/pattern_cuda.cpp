#include "masks/gpu.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "core/cuda_launch.h"
#include "core/gpu.h"
#include "graph/gpu.h"
#include "masks/cuda/row_tiles.h"
#include "masks/derived_pattern.h"

namespace topomask {

namespace {

using Derived = SparsePattern::Derived;

// Rows that share a column of a tile, on average: with fewer, rows by themselves are faster
// (docs/notes/tuning.md).
constexpr double kLeastReuse = 2;

// Called with the mutex held. What was made while a CUDA graph was captured is filled in when that graph
// runs: for other uses it is made again.
Derived& derived_of(const SparsePattern& pattern) {
  Derived& derived = *pattern.derived;
  const std::uint64_t capture = capture_id(pattern.device());
  if (derived.capture != 0 && derived.capture != capture) {
    derived.transposed_ptr = derived.transposed_row = derived.transposed_entry = at::Tensor();
    derived.rows = derived.columns = {};
    derived.capture = 0;
  }
  return derived;
}

TransposedPattern transpose_locked(const SparsePattern& pattern, Derived& derived) {
  if (pattern.transposed_ptr.defined()) {
    return {pattern.transposed_ptr, pattern.transposed_row, pattern.transposed_entry};
  }
  if (!derived.transposed_ptr.defined()) {
    const TransposedEntries made =
        transpose_entries_cuda(pattern.row_ptr, pattern.col, pattern.num_nodes(), /*wide=*/true);
    derived.transposed_row = made.row;
    derived.transposed_entry = made.entry;
    derived.transposed_ptr = made.ptr;
    derived.capture = capture_id(pattern.device());
  }
  return {derived.transposed_ptr, derived.transposed_row, derived.transposed_entry};
}

void find_long_rows(const at::Tensor& row_ptr, Derived::LongRows& found) {
  found.known = true;
  const at::Tensor counts = row_ptr.diff();
  const at::Tensor rows = (counts > kSegmentEntries).nonzero().view({-1});
  if (rows.size(0) == 0) return;
  const at::Tensor pieces = (counts.index({rows}) + (kSegmentEntries - 1)).floor_divide(kSegmentEntries);
  const at::Tensor ptr = at::cat({at::zeros({1}, pieces.options()), pieces.cumsum(0)});
  const at::Tensor owner = at::repeat_interleave(pieces);  // of each segment, among the long rows
  const at::Tensor which = at::arange(owner.size(0), ptr.options()) - ptr.index({owner});
  const at::Tensor segment_row = rows.index({owner});
  found.segment_begin = row_ptr.index({segment_row}) + which * kSegmentEntries;
  found.segment_row = segment_row.to(at::kInt);
  found.segment_ptr = ptr.to(at::kInt);
  found.row = rows.to(at::kInt);
}

// Finding long rows takes the host's waiting for their number: a padded pattern does without, and so does a
// CUDA graph.
DeviceRows with_long_rows(DeviceRows rows, const SparsePattern& pattern, const at::Tensor& row_ptr,
                          Derived::LongRows& found) {
  if (!found.known && (pattern.padded || capture_id(pattern.device()) != 0)) {
    rows.uncut = true;
    return rows;
  }
  if (!found.known) find_long_rows(row_ptr, found);
  if (!found.row.defined()) return rows;
  rows.num_long = found.row.size(0);
  rows.num_segments = found.segment_row.size(0);
  rows.long_row = found.row.const_data_ptr<std::int32_t>();
  rows.segment_ptr = found.segment_ptr.const_data_ptr<std::int32_t>();
  rows.segment_row = found.segment_row.const_data_ptr<std::int32_t>();
  rows.segment_begin = found.segment_begin.const_data_ptr<std::int64_t>();
  return rows;
}

const std::int32_t* pointer_to(const at::Tensor& order) {
  return order.defined() ? order.const_data_ptr<std::int32_t>() : nullptr;
}

// Entries of each tile, summed up. Long rows have none there.
at::Tensor first_entries(const SparsePattern& pattern, const at::Tensor& order) {
  const std::int64_t n = pattern.num_nodes(), tiles = (n + kTileRows - 1) / kTileRows;
  at::Tensor lengths = pattern.row_ptr.diff();
  lengths = lengths.where(lengths <= kSegmentEntries, 0);
  if (order.defined()) lengths = lengths.index_select(0, order);
  const at::Tensor whole = at::zeros({tiles * kTileRows}, lengths.options());
  whole.narrow(0, 0, n).copy_(lengths);
  const at::Tensor ends = whole.view({tiles, kTileRows}).sum(1).cumsum(0);
  return at::cat({at::zeros({1}, ends.options()), ends});
}

// The tiles of rows in an order, and how many rows share a column of a tile on average.
struct MadeTiles {
  Derived::Tiles tiles;
  double reuse = 0;
};

MadeTiles make_tiles(const SparsePattern& pattern, DeviceRows rows, const at::Tensor& order) {
  const CudaLaunch launch(pattern.row_ptr);
  const at::Tensor first = first_entries(pattern, order);
  const std::int64_t tiles = first.size(0) - 1, nnz = pattern.nnz(), room = nnz / kTileColumns + tiles;
  const at::TensorOptions ints = pattern.col.options();
  MadeTiles made;
  made.tiles = {.known = true,
                .order = order,
                .first_entry = first,
                .num_steps = at::empty({tiles}, ints),
                .column = at::empty({room, kTileColumns}, ints),
                .step_first = at::empty({room}, ints),
                .place = at::empty({nnz}, ints.dtype(at::kShort)),
                .entry = at::empty({nnz}, ints)};
  const RowTilesResult result = {
      .num_steps = made.tiles.num_steps.data_ptr<std::int32_t>(),
      .column = made.tiles.column.data_ptr<std::int32_t>(),
      .step_first = made.tiles.step_first.data_ptr<std::int32_t>(),
      .place = reinterpret_cast<std::uint16_t*>(made.tiles.place.data_ptr<std::int16_t>()),
      .entry = made.tiles.entry.data_ptr<std::int32_t>()};
  rows.order = pointer_to(order);
  check_cuda(make_row_tiles(rows, first.const_data_ptr<std::int64_t>(),
                            first.diff().max().item<std::int64_t>(), result, launch.stream),
             "mask engine, tiles of rows");
  const at::Tensor sizes = at::stack({first[tiles], made.tiles.num_steps.sum() * kTileColumns}).to(at::kCPU);
  const auto entries_and_columns = sizes.accessor<std::int64_t, 1>();
  made.reuse = static_cast<double>(entries_and_columns[0]) /
               static_cast<double>(std::max<std::int64_t>(entries_and_columns[1], 1));
  return made;
}

at::Tensor order_by_neighbourhood(const SparsePattern& pattern, const DeviceRows& rows) {
  const CudaLaunch launch(pattern.row_ptr);
  const std::int64_t n = pattern.num_nodes();
  const at::Tensor scratch = at::empty({3, n}, pattern.col.options());
  const at::Tensor key = at::empty({n}, pattern.row_ptr.options());
  check_cuda(neighbourhood_keys(rows, reinterpret_cast<std::uint32_t*>(scratch.data_ptr<std::int32_t>()),
                                key.data_ptr<std::int64_t>(), launch.stream),
             "mask engine, order of rows");
  return std::get<1>(key.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false)).to(at::kInt);
}

// Rows as they stand or, where their neighbours are not beside them, in an order found here.
Derived::Tiles find_tiles(const SparsePattern& pattern, const DeviceRows& rows) {
  constexpr double kGoodReuse = 4;
  MadeTiles best = make_tiles(pattern, rows, pattern.order);
  if (best.reuse < kGoodReuse) {
    MadeTiles other = make_tiles(pattern, rows, order_by_neighbourhood(pattern, rows));
    if (other.reuse > best.reuse) best = std::move(other);
  }
  if (best.reuse < kLeastReuse) {
    best.tiles = Derived::Tiles();
    best.tiles.known = true;
  }
  return best.tiles;
}

}  // namespace

at::Tensor empty_values(const SparsePattern& pattern, at::IntArrayRef sizes,
                        const at::TensorOptions& options) {
  return pattern.padded ? at::zeros(sizes, options) : at::empty(sizes, options);
}

TransposedPattern transpose_of(const SparsePattern& pattern) {
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  return transpose_locked(pattern, derived_of(pattern));
}

DeviceRows device_rows(const SparsePattern& pattern) {
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  DeviceRows rows{pattern.num_nodes(),
                  pattern.nnz(),
                  pattern.row_ptr.const_data_ptr<std::int64_t>(),
                  pattern.col.const_data_ptr<std::int32_t>(),
                  nullptr,
                  pointer_to(pattern.order)};
  if (pattern.longest_row >= 0 && pattern.longest_row <= kSegmentEntries) return rows;
  return with_long_rows(rows, pattern, pattern.row_ptr, derived_of(pattern).rows);
}

DeviceRows device_columns(const SparsePattern& pattern) {
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  Derived& derived = derived_of(pattern);
  const TransposedPattern transposed = transpose_locked(pattern, derived);
  const DeviceRows columns{pattern.num_nodes(),
                           pattern.nnz(),
                           transposed.ptr.const_data_ptr<std::int64_t>(),
                           transposed.row.const_data_ptr<std::int32_t>(),
                           transposed.entry.const_data_ptr<std::int64_t>(),
                           pointer_to(pattern.order)};
  return with_long_rows(columns, pattern, transposed.ptr, derived.columns);
}

std::optional<RowTiles> row_tiles(const SparsePattern& pattern, const DeviceRows& rows) {
  if (pattern.padded || rows.uncut || pattern.nnz() == 0 || pattern.nnz() > kMostTiledEntries) return {};
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  Derived::Tiles& tiles = pattern.derived->tiles;
  if (!tiles.known) {
    if (capture_id(pattern.device()) != 0) return {};
    // Making tiles takes longer than they save in one call, and a mask that walks anew at every step has no
    // other. Who asks torch for deterministic algorithms gets the same bits from the first call on.
    const bool asked_before = std::exchange(tiles.asked, true);
    if (!asked_before && !at::globalContext().deterministicAlgorithms()) return {};
    tiles = find_tiles(pattern, rows);
  }
  if (!tiles.entry.defined()) return {};
  return RowTiles{.num_tiles = tiles.num_steps.size(0),
                  .order = pointer_to(tiles.order),
                  .first_entry = tiles.first_entry.const_data_ptr<std::int64_t>(),
                  .num_steps = tiles.num_steps.const_data_ptr<std::int32_t>(),
                  .column = tiles.column.const_data_ptr<std::int32_t>(),
                  .step_first = tiles.step_first.const_data_ptr<std::int32_t>(),
                  .place = reinterpret_cast<const std::uint16_t*>(tiles.place.const_data_ptr<std::int16_t>()),
                  .entry = tiles.entry.const_data_ptr<std::int32_t>()};
}

}  // namespace topomask
