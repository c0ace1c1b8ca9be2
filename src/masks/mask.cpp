#include "topomask/mask.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>

#include "core/check.h"
#include "core/gpu.h"
#include "core/tensors.h"
#include "graph/gpu.h"
#include "graph/tensors.h"
#include "masks/cpu/pattern.h"
#include "masks/cpu/work_order.h"
#include "masks/derived_pattern.h"
#include "masks/sparse_ops.h"

namespace topomask {

namespace {

// Where the entries stand in the matrix, row after row: found once, for every step of training asks for it.
at::Tensor positions_in(const SparsePattern& pattern) {
  const std::lock_guard<std::mutex> lock(pattern.derived->mutex);
  at::Tensor& position = pattern.derived->position;
  if (position.defined()) return position;
  const c10::InferenceMode learnable(false);  // gradients will ask for it too
  const at::Tensor found = entry_rows(pattern).to(at::kLong) * pattern.num_nodes() + pattern.col;
  // What a CUDA graph computes is there for itself alone.
  if (capture_id(pattern.device()) == 0) position = found;
  return found;
}

}  // namespace

at::Tensor entry_rows(const SparsePattern& pattern) {
  if (pattern.device().is_cuda()) return entry_rows_cuda(pattern.row_ptr, pattern.nnz());
  return at::repeat_interleave(pattern.row_ptr.diff(), std::optional<std::int64_t>(pattern.nnz()));
}

at::Tensor write_out(const SparsePattern& pattern, const at::Tensor& values) {
  const std::int64_t n = pattern.num_nodes();
  at::Tensor flat = at::zeros({values.size(0), n * n}, values.options());
  // Entries in no row add their 0 to the first of all.
  const at::Tensor written = pattern.padded ? flat.index_add_(1, positions_in(pattern), values)
                                            : flat.index_copy_(1, positions_in(pattern), values);
  return written.view({values.size(0), n, n});
}

std::shared_ptr<SparsePattern::Derived> SparsePattern::make_derived() {
  return std::make_shared<Derived>();
}

SparsePattern SparsePattern::from_rows(at::Tensor row_ptr, at::Tensor col, std::int64_t num_columns) {
  check(row_ptr.defined() && row_ptr.dim() == 1 && row_ptr.size(0) >= 1 &&
            row_ptr.scalar_type() == at::kLong && (row_ptr.is_cpu() || row_ptr.is_cuda()),
        "SparsePattern: row_ptr must be int64 [N+1] on cpu or cuda, got {}", describe(row_ptr));
  check(col.defined() && col.dim() == 1 && col.scalar_type() == at::kInt && col.device() == row_ptr.device(),
        "SparsePattern: col must be int32 [nnz] on {} as row_ptr, got {}", row_ptr.device().str(),
        describe(col));
  SparsePattern pattern;
  pattern.row_ptr = row_ptr.contiguous();
  pattern.col = col.contiguous();
  if (row_ptr.is_cuda()) return pattern;
  const std::int64_t n = pattern.num_nodes(), nnz = pattern.nnz(), width = num_columns < 0 ? n : num_columns;
  const auto* rows = pattern.row_ptr.const_data_ptr<std::int64_t>();
  const auto* columns = pattern.col.const_data_ptr<std::int32_t>();
  const PatternFault fault = find_pattern_fault(n, width, nnz, rows, columns);
  check(fault.row < 0, "SparsePattern: {} at row {} of {} ({} entries)", fault.what, fault.row, n, nnz);

  pattern.transposed_ptr = at::empty({width + 1}, at::kLong);
  pattern.transposed_row = at::empty({nnz}, at::kInt);
  pattern.transposed_entry = at::empty({nnz}, at::kLong);
  transpose_pattern(n, width, rows, columns, pattern.transposed_ptr.data_ptr<std::int64_t>(),
                    pattern.transposed_row.data_ptr<std::int32_t>(),
                    pattern.transposed_entry.data_ptr<std::int64_t>());
  return pattern;
}

SparsePattern SparsePattern::to(c10::Device target) const {
  if (target == device()) return *this;
  if (padded) {
    SparsePattern whole = from_rows(row_ptr, col.narrow(0, 0, row_ptr[num_nodes()].item<std::int64_t>()));
    whole.order = order;
    whole.longest_row = longest_row;
    return whole.to(target);
  }
  SparsePattern moved;
  const auto move = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(target) : tensor; };
  moved.row_ptr = move(row_ptr);
  moved.col = move(col);
  moved.transposed_ptr = move(transposed_ptr);
  moved.transposed_row = move(transposed_row);
  moved.transposed_entry = move(transposed_entry);
  moved.longest_row = longest_row;
  moved.order = order;
  if (!order.defined() && device().is_cpu() && target.is_cuda()) {
    const std::vector<std::int32_t> found =
        work_order(num_nodes(), row_ptr.const_data_ptr<std::int64_t>(), col.const_data_ptr<std::int32_t>());
    if (!found.empty()) moved.order = order_tensor(found).to(at::kInt);
  }
  moved.order = move(moved.order);
  // A pattern made on a GPU comes without its transpose, which the CPU's kernels expect to be there.
  if (target.is_cpu() && !moved.transposed_ptr.defined()) {
    const at::Tensor own_order = moved.order;
    moved = from_rows(moved.row_ptr, moved.col);
    moved.order = own_order;
    moved.longest_row = longest_row;
  }
  return moved;
}

std::optional<c10::Device> Mask::device() const {
  const std::vector<at::Tensor> own = parameters();
  return own.empty() ? std::nullopt : std::optional<c10::Device>(own.front().device());
}

std::vector<std::shared_ptr<const SparsePattern>> Mask::patterns() const {
  const at::NoGradGuard values_do_not_matter;
  std::vector<std::shared_ptr<const SparsePattern>> found;
  for (const SparseEntries& own : entries()) found.push_back(own.pattern);
  return found;
}

std::vector<at::Tensor> Mask::entry_gradients(const std::vector<at::Tensor>& of_values) const {
  const at::AutoGradMode with_graph(true);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& parameter : parameters()) leaves.push_back(parameter.detach().requires_grad_());
  std::vector<at::Tensor> values, grads;
  const std::vector<SparseEntries> own = with_parameters(leaves)->entries();
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (!own[i].values.requires_grad()) continue;
    values.push_back(own[i].values);
    grads.push_back(of_values[i].to(own[i].values.scalar_type()));
  }
  if (values.empty()) return std::vector<at::Tensor>(leaves.size());
  return torch::autograd::grad(values, leaves, grads, /*retain_graph=*/false, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

std::vector<SparseEntries> Mask::entries() const {
  fail("mask '{}' has no sparse entries: use multiply, or dense where it is small", name());
}

std::vector<SparseFactors> Mask::sparse_factors() const {
  fail("mask '{}' has no sparse factors: use multiply", name());
}

Factors Mask::factors() const {
  fail("mask '{}' has no low-rank factors: use multiply, or dense where it is small", name());
}

at::Tensor Mask::dense(at::ScalarType dtype) const {
  check(dtype == at::kFloat || dtype == at::kDouble, "mask '{}': dense expects float32 or float64, got {}",
        name(), c10::toString(dtype));
  const std::int64_t n = num_nodes();
  const auto one_per_head = [&](const at::Tensor& matrix) { return matrix.expand({heads(), n, n}); };
  const MaskProfile known_about = profile();
  if (known_about.sparse()) {
    const std::vector<SparseEntries> known = entries();
    if (known.size() == 1)
      return one_per_head(write_out(*known.front().pattern, known.front().values.to(dtype)));
    std::vector<at::Tensor> matrices;
    for (const SparseEntries& head : known)
      matrices.push_back(write_out(*head.pattern, head.values.to(dtype)));
    return at::cat(matrices);
  }
  if (known_about.rank > 0) {
    const Factors known = factors();
    return one_per_head(at::matmul(known.left.to(dtype), known.right.to(dtype).transpose(-2, -1)));
  }
  return multiply(one_per_head(at::eye(n, at::TensorOptions(dtype).device(device().value_or(at::kCPU)))));
}

}  // namespace topomask
