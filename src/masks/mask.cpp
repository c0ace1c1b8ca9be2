#include "topomask/mask.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "core/check.h"
#include "graph/tensors.h"
#include "masks/cpu/pattern.h"
#ifdef TOPOMASK_CUDA
#include "graph/graph_cuda.h"
#endif

namespace topomask {

namespace {

// [values.size(0), N, N]
at::Tensor write_out(const SparseEntries& entries, at::ScalarType dtype) {
  const SparsePattern& pattern = *entries.pattern;
  const std::int64_t n = pattern.num_nodes();
  const at::Tensor rows = at::arange(n, pattern.row_ptr.options()).repeat_interleave(pattern.row_ptr.diff());
  const at::Tensor position = rows * n + pattern.col.to(at::kLong);
  const at::Tensor values = entries.values.to(dtype);
  const at::Tensor flat = at::zeros({values.size(0), n * n}, values.options());
  return flat.index_copy(1, position, values).view({values.size(0), n, n});
}

}  // namespace

SparsePattern SparsePattern::from_rows(at::Tensor row_ptr, at::Tensor col) {
#ifdef TOPOMASK_CUDA
  if (row_ptr.is_cuda()) {
    TransposedEntries columns = transpose_entries_cuda(row_ptr, col, row_ptr.size(0) - 1);
    return {row_ptr, col, columns.ptr, columns.row, columns.entry.to(at::kLong)};
  }
#endif
  check(row_ptr.defined() && row_ptr.dim() == 1 && row_ptr.size(0) >= 1 &&
            row_ptr.scalar_type() == at::kLong && row_ptr.is_cpu(),
        "SparsePattern: row_ptr must be int64 [N+1] on cpu, got {}", describe(row_ptr));
  check(col.defined() && col.dim() == 1 && col.scalar_type() == at::kInt && col.is_cpu(),
        "SparsePattern: col must be int32 [nnz] on cpu, got {}", describe(col));
  SparsePattern pattern;
  pattern.row_ptr = row_ptr.contiguous();
  pattern.col = col.contiguous();
  const std::int64_t n = pattern.num_nodes(), nnz = pattern.nnz();
  const auto* rows = pattern.row_ptr.const_data_ptr<std::int64_t>();
  const auto* columns = pattern.col.const_data_ptr<std::int32_t>();
  const PatternFault fault = find_pattern_fault(n, nnz, rows, columns);
  check(fault.row < 0, "SparsePattern: {} at row {} of {} ({} entries)", fault.what, fault.row, n, nnz);

  pattern.transposed_ptr = at::empty({n + 1}, at::kLong);
  pattern.transposed_row = at::empty({nnz}, at::kInt);
  pattern.transposed_entry = at::empty({nnz}, at::kLong);
  transpose_pattern(n, rows, columns, pattern.transposed_ptr.data_ptr<std::int64_t>(),
                    pattern.transposed_row.data_ptr<std::int32_t>(),
                    pattern.transposed_entry.data_ptr<std::int64_t>());
  return pattern;
}

std::vector<SparseEntries> Mask::entries() const {
  fail("mask '{}' has no sparse entries: use apply, or dense where it is small", name());
}

std::vector<SparseFactors> Mask::sparse_factors() const {
  fail("mask '{}' has no sparse factors: use apply", name());
}

LowRankFactors Mask::low_rank() const {
  fail("mask '{}' has no low-rank factors: use apply, or dense where it is small", name());
}

at::Tensor Mask::dense(at::ScalarType dtype) const {
  check(dtype == at::kFloat || dtype == at::kDouble, "mask '{}': dense expects float32 or float64, got {}",
        name(), c10::toString(dtype));
  const std::int64_t n = num_nodes();
  const auto one_per_head = [&](const at::Tensor& matrix) { return matrix.expand({num_heads(), n, n}); };
  if (has_entries()) {
    const std::vector<SparseEntries> known = entries();
    if (known.size() == 1) return one_per_head(write_out(known.front(), dtype));
    std::vector<at::Tensor> heads;
    for (const SparseEntries& head : known) heads.push_back(write_out(head, dtype).squeeze(0));
    return at::stack(heads);
  }
  if (has_low_rank()) {
    const LowRankFactors factors = low_rank();
    return one_per_head(at::matmul(factors.left.to(dtype), factors.right.to(dtype).transpose(-2, -1)));
  }
  return apply(one_per_head(at::eye(n, dtype)));
}

}  // namespace topomask
