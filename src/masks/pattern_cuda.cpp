#include "masks/gpu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>

#include "core/gpu.h"
#include "graph/gpu.h"
#include "masks/derived_pattern.h"

namespace topomask {

namespace {

using Derived = SparsePattern::Derived;

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

const std::int32_t* order_of(const SparsePattern& pattern) {
  return pattern.order.defined() ? pattern.order.const_data_ptr<std::int32_t>() : nullptr;
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
                  order_of(pattern)};
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
                           order_of(pattern)};
  return with_long_rows(columns, pattern, transposed.ptr, derived.columns);
}

}  // namespace topomask
