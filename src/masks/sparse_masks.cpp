// Masks that are given by their nonzero entries: neighbours within some hops, and any sparse matrix.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>

#include "core/check.h"
#include "core/tensors.h"
#include "masks/arguments.h"
#include "masks/cpu/distances.h"
#include "masks/sparse_ops.h"
#include "topomask/masks.h"

namespace topomask {

namespace {

MaskProfile sparse_profile(const Mask& mask, const SparsePattern& pattern) {
  const double nnz = static_cast<double>(pattern.nnz());
  MaskProfile profile = basic_profile(mask, nnz, 4 * (nnz + static_cast<double>(pattern.num_nodes())));
  profile.far_share = far_share(pattern);
  profile.entries = pattern.nnz();
  return profile;
}

template <class T>
at::Tensor tensor_from(const std::vector<T>& values, at::ScalarType dtype) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, dtype);
  std::copy(values.begin(), values.end(), tensor.data_ptr<T>());
  return tensor;
}

}  // namespace

NeighbourMask::NeighbourMask(const Graph& graph, int hops, bool include_self) {
  check(hops >= 0, "NeighbourMask: hops must be at least 0, got {}", hops);
  const Graph given = graph_on_cpu(graph);
  const CsrArrays rows = neighbourhoods(given.view(), hops, include_self);
  pattern_ = std::make_shared<const SparsePattern>(
      SparsePattern::from_rows(tensor_from(rows.row_ptr, at::kLong), tensor_from(rows.col, at::kInt))
          .to(graph.row_ptr.device()));
  ones_ = at::ones({1, pattern_->nnz()}, at::TensorOptions(at::kFloat).device(pattern_->device()));
}

at::Tensor NeighbourMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  return sparse_matmul(pattern_, ones_.to(x.scalar_type()), x, transposed);
}

std::vector<SparseEntries> NeighbourMask::entries() const {
  return {{pattern_, ones_}};
}

MaskProfile NeighbourMask::profile() const {
  return sparse_profile(*this, *pattern_);
}

MaskPtr NeighbourMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {});
}

SparseMask::SparseMask(std::shared_ptr<const SparsePattern> pattern, at::Tensor values)
    : pattern_(std::move(pattern)), values_(std::move(values)) {
  check(pattern_ != nullptr, "SparseMask: pattern must be given, got a null pointer");
  const std::int64_t columns =
      pattern_->transposed_ptr.defined() ? pattern_->transposed_ptr.size(0) - 1 : pattern_->num_nodes();
  check(columns == pattern_->num_nodes(), "SparseMask: expected a square pattern, got {} rows and {} columns",
        pattern_->num_nodes(), columns);
  const std::string shape = fmt::format("[H, {}], as many as the pattern has entries", pattern_->nnz());
  check_parameter("SparseMask", "values", values_, {-1, pattern_->nnz()}, shape.c_str());
  check_same_device("SparseMask", "values", values_, "the pattern", pattern_->row_ptr);
}

at::Tensor SparseMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  return sparse_matmul(pattern_, values_.to(x.scalar_type()), x, transposed);
}

MaskProfile SparseMask::profile() const {
  return sparse_profile(*this, *pattern_);
}

MaskPtr SparseMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"values"}, &SparseMask::values_);
}

}  // namespace topomask
