#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>

#include "core/check.h"
#include "masks/arguments.h"
#include "masks/sparse_ops.h"
#include "topomask/mask_combinators.h"

namespace topomask {

AbsoluteMask::AbsoluteMask(MaskPtr mask) : mask_(std::move(mask)) {
  check(mask_ != nullptr, "AbsoluteMask: mask must be given, got a null pointer");
}

std::string AbsoluteMask::name() const {
  return fmt::format("absolute({})", mask_->name());
}

MaskPtr AbsoluteMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return std::make_shared<AbsoluteMask>(mask_->with_parameters(parameters));
}

at::Tensor AbsoluteMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  if (!mask_->profile().sparse()) {
    const at::Tensor matrix = dense(x.scalar_type());
    return at::matmul(transposed ? matrix.transpose(1, 2) : matrix, x);
  }
  const std::vector<SparseEntries> parts = entries();
  if (parts.size() == 1)
    return sparse_matmul(parts[0].pattern, parts[0].values.to(x.scalar_type()), x, transposed);
  std::vector<at::Tensor> products;
  for (std::size_t head = 0; head < parts.size(); ++head) {
    const at::Tensor columns = x.narrow(0, static_cast<std::int64_t>(head), 1);
    products.push_back(
        sparse_matmul(parts[head].pattern, parts[head].values.to(x.scalar_type()), columns, transposed));
  }
  return at::cat(products);
}

std::vector<SparseEntries> AbsoluteMask::entries() const {
  std::vector<SparseEntries> parts = mask_->entries();
  for (SparseEntries& part : parts) part.values = part.values.abs();
  return parts;
}

at::Tensor AbsoluteMask::dense(at::ScalarType dtype) const {
  return mask_->dense(dtype).abs();
}

MaskProfile AbsoluteMask::profile() const {
  MaskProfile profile = mask_->profile();
  const double n = static_cast<double>(num_nodes());
  const std::int64_t patterns = profile.pattern_per_head ? heads() : 1;
  const double entries = profile.sparse() ? static_cast<double>(profile.entries / patterns) : n * n;
  profile.name = name();
  profile.rank = 0;
  profile.sparse_factors = false;
  profile.multiply_adds_per_column = entries;
  profile.bytes_per_column = 12 * entries;
  return profile;
}

}  // namespace topomask
