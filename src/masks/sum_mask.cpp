#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "masks/arguments.h"
#include "masks/merged_entries.h"
#include "masks/parts.h"
#include "topomask/mask_combinators.h"

namespace topomask {

SumMask::SumMask(std::vector<MaskPtr> masks)
    : masks_(std::move(masks)), merged_(std::make_unique<MergedEntries>()) {
  check_parts("SumMask", masks_);
  for (const MaskPtr& mask : masks_)
    check(mask->num_nodes() == num_nodes(), "SumMask: masks must have {} nodes as the first, but '{}' has {}",
          num_nodes(), mask->name(), mask->num_nodes());
  num_heads_ = common_heads("SumMask", masks_);
  check_one_device("SumMask", masks_);
}

SumMask::~SumMask() = default;

std::string SumMask::name() const {
  std::vector<std::string> names;
  for (const MaskPtr& mask : masks_) names.push_back(mask->name());
  return fmt::format("sum({})", fmt::join(names, ", "));
}

std::vector<at::Tensor> SumMask::parameters() const {
  return all_parameters(masks_);
}

std::optional<c10::Device> SumMask::device() const {
  return common_device(masks_);
}

at::Tensor SumMask::apply(const at::Tensor& x) const {
  check_input(*this, x);
  at::Tensor y = masks_.front()->apply(x);
  for (std::size_t k = 1; k < masks_.size(); ++k) y = y + masks_[k]->apply(x);
  return y;
}

at::Tensor SumMask::apply_transposed(const at::Tensor& x) const {
  check_input(*this, x);
  at::Tensor y = masks_.front()->apply_transposed(x);
  for (std::size_t k = 1; k < masks_.size(); ++k) y = y + masks_[k]->apply_transposed(x);
  return y;
}

bool SumMask::has_entries() const {
  return all_have_entries(masks_);
}

std::vector<SparseEntries> SumMask::entries() const {
  std::vector<PlacedEntries> parts;
  for (const MaskPtr& mask : masks_) parts.push_back({mask->entries(), 0});
  return merged_->merge(num_nodes(), parts);
}

bool SumMask::entries_per_head() const {
  return any_per_head(masks_);
}

std::int64_t SumMask::num_entries_total() const {
  const std::int64_t counted = merged_->num_entries();
  return counted >= 0 ? counted : bound_entries(masks_, num_heads_);
}

bool SumMask::has_low_rank() const {
  return std::all_of(masks_.begin(), masks_.end(), [](const MaskPtr& mask) { return mask->has_low_rank(); });
}

LowRankFactors SumMask::low_rank() const {
  if (!has_low_rank()) return Mask::low_rank();
  std::vector<at::Tensor> left, right;
  const auto for_all_heads = [&](const at::Tensor& factor) {
    return on_device(factor, device()).expand({num_heads_, factor.size(1), factor.size(2)});
  };
  for (const MaskPtr& mask : masks_) {
    const LowRankFactors factors = mask->low_rank();
    left.push_back(for_all_heads(factors.left));
    right.push_back(for_all_heads(factors.right));
  }
  return {at::cat(left, -1), at::cat(right, -1)};
}

at::Tensor SumMask::dense(at::ScalarType dtype) const {
  at::Tensor sum = on_device(masks_.front()->dense(dtype), device());
  for (std::size_t k = 1; k < masks_.size(); ++k) sum = sum + on_device(masks_[k]->dense(dtype), device());
  return sum.expand({num_heads_, num_nodes(), num_nodes()});
}

MaskCost SumMask::cost() const {
  return total_cost(masks_);
}

}  // namespace topomask
