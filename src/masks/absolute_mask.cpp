#include "topomask/absolute_mask.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>

#include "core/check.h"
#include "masks/arguments.h"
#include "masks/sparse_ops.h"

namespace topomask {

AbsoluteMask::AbsoluteMask(MaskPtr mask) : mask_(std::move(mask)) {
  check(mask_ != nullptr, "AbsoluteMask: mask must be given, got a null pointer");
}

std::string AbsoluteMask::name() const {
  return fmt::format("absolute({})", mask_->name());
}

at::Tensor AbsoluteMask::apply_either(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  if (!has_entries()) {
    const at::Tensor matrix = dense(x.scalar_type());
    return at::matmul(transposed ? matrix.transpose(1, 2) : matrix, x);
  }
  const std::vector<SparseEntries> parts = entries();
  if (parts.size() == 1)
    return sparse_matmul(parts[0].pattern, parts[0].values.to(x.scalar_type()), x, transposed);
  std::vector<at::Tensor> heads;
  for (std::size_t head = 0; head < parts.size(); ++head) {
    const at::Tensor columns = x.narrow(0, static_cast<std::int64_t>(head), 1);
    heads.push_back(
        sparse_matmul(parts[head].pattern, parts[head].values.to(x.scalar_type()), columns, transposed));
  }
  return at::cat(heads);
}

at::Tensor AbsoluteMask::apply(const at::Tensor& x) const {
  return apply_either(x, false);
}

at::Tensor AbsoluteMask::apply_transposed(const at::Tensor& x) const {
  return apply_either(x, true);
}

std::vector<SparseEntries> AbsoluteMask::entries() const {
  std::vector<SparseEntries> parts = mask_->entries();
  for (SparseEntries& part : parts) part.values = part.values.abs();
  return parts;
}

at::Tensor AbsoluteMask::dense(at::ScalarType dtype) const {
  return mask_->dense(dtype).abs();
}

MaskCost AbsoluteMask::cost() const {
  const double n = static_cast<double>(num_nodes());
  const double entries =
      has_entries() ? static_cast<double>(num_entries_total() / (entries_per_head() ? num_heads() : 1))
                    : n * n;
  return {entries, 12 * entries};
}

}  // namespace topomask
