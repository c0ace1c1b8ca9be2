#include "masks/gpu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>

#include "masks/derived_pattern.h"

namespace topomask {

namespace {

using Derived = SparsePattern::Derived;

TransposedPattern sort_by_column(const SparsePattern& pattern) {
  // A stable sort keeps the rows of a column ascending.
  const auto [column, entry] = at::sort(pattern.col, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor rows =
      at::repeat_interleave(pattern.row_ptr.diff(), std::optional<std::int64_t>(pattern.nnz()));
  const at::Tensor nodes = at::arange(pattern.num_nodes() + 1, column.options());
  return {at::searchsorted(column, nodes), rows.index({entry}).to(at::kInt), entry};
}

// Called with the mutex held.
TransposedPattern transpose_locked(const SparsePattern& pattern) {
  if (pattern.transposed_ptr.defined()) {
    return {pattern.transposed_ptr, pattern.transposed_row, pattern.transposed_entry};
  }
  Derived& derived = *pattern.derived;
  if (!derived.transposed_ptr.defined()) {
    const TransposedPattern made = sort_by_column(pattern);
    derived.transposed_row = made.row;
    derived.transposed_entry = made.entry;
    derived.transposed_ptr = made.ptr;
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

DeviceRows with_long_rows(DeviceRows rows, const Derived::LongRows& found) {
  if (!found.row.defined()) return rows;
  rows.num_long = found.row.size(0);
  rows.num_segments = found.segment_row.size(0);
  rows.long_row = found.row.const_data_ptr<std::int32_t>();
  rows.segment_ptr = found.segment_ptr.const_data_ptr<std::int32_t>();
  rows.segment_row = found.segment_row.const_data_ptr<std::int32_t>();
  rows.segment_begin = found.segment_begin.const_data_ptr<std::int64_t>();
  return rows;
}

const std::int32_t* order_of(const SparsePattern& pattern) {
  return pattern.order.defined() ? pattern.order.const_data_ptr<std::int32_t>() : nullptr;
}

}  // namespace

TransposedPattern transpose_of(const SparsePattern& pattern) {
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  return transpose_locked(pattern);
}

DeviceRows device_rows(const SparsePattern& pattern) {
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  Derived::LongRows& found = pattern.derived->rows;
  const bool all_short = pattern.longest_row >= 0 && pattern.longest_row <= kSegmentEntries;
  if (!found.known && !all_short) find_long_rows(pattern.row_ptr, found);
  return with_long_rows({pattern.num_nodes(), pattern.nnz(), pattern.row_ptr.const_data_ptr<std::int64_t>(),
                         pattern.col.const_data_ptr<std::int32_t>(), nullptr, order_of(pattern)},
                        found);
}

DeviceRows device_columns(const SparsePattern& pattern) {
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  const TransposedPattern transposed = transpose_locked(pattern);
  Derived::LongRows& found = pattern.derived->columns;
  if (!found.known) find_long_rows(transposed.ptr, found);
  return with_long_rows({pattern.num_nodes(), pattern.nnz(), transposed.ptr.const_data_ptr<std::int64_t>(),
                         transposed.row.const_data_ptr<std::int32_t>(),
                         transposed.entry.const_data_ptr<std::int64_t>(), order_of(pattern)},
                        found);
}

}  // namespace topomask
