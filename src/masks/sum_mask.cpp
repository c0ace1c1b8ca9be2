#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "masks/arguments.h"
#include "masks/merged_entries.h"
#include "masks/parts.h"
#include "topomask/mask_combinators.h"

namespace topomask {

SumMask::SumMask(std::vector<MaskPtr> masks)
    : masks_(std::move(masks)), merged_(std::make_shared<MergedEntries>()) {
  check_parts("SumMask", masks_);
  for (const MaskPtr& mask : masks_)
    check(mask->num_nodes() == num_nodes(), "SumMask: masks must have {} nodes as the first, but '{}' has {}",
          num_nodes(), mask->name(), mask->num_nodes());
  heads_ = common_heads("SumMask", masks_);
  check_one_device("SumMask", masks_);
}

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

std::vector<std::int64_t> SumMask::blocks() const {
  return common_blocks(masks_);
}

MaskPtr SumMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  auto copy = std::make_shared<SumMask>(*this);
  copy->masks_ = with_all_parameters("SumMask", masks_, parameters);
  return copy;
}

at::Tensor SumMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  at::Tensor y = masks_.front()->multiply(x, transposed);
  for (std::size_t k = 1; k < masks_.size(); ++k) y = y + masks_[k]->multiply(x, transposed);
  return y;
}

std::vector<SparseEntries> SumMask::entries() const {
  std::vector<PlacedEntries> parts;
  for (const MaskPtr& mask : masks_) parts.push_back({mask->entries(), 0});
  return merged_->merge(num_nodes(), parts);
}

Factors SumMask::factors() const {
  for (const MaskPtr& mask : masks_) {
    if (mask->profile().rank == 0) return Mask::factors();
  }
  std::vector<at::Tensor> left, right;
  const auto for_all_heads = [&](const at::Tensor& factor) {
    return on_device(factor, device()).expand({heads_, factor.size(1), factor.size(2)});
  };
  for (const MaskPtr& mask : masks_) {
    const Factors factors = mask->factors();
    left.push_back(for_all_heads(factors.left));
    right.push_back(for_all_heads(factors.right));
  }
  return {at::cat(left, -1), at::cat(right, -1)};
}

at::Tensor SumMask::dense(at::ScalarType dtype) const {
  at::Tensor sum = on_device(masks_.front()->dense(dtype), device());
  for (std::size_t k = 1; k < masks_.size(); ++k) sum = sum + on_device(masks_[k]->dense(dtype), device());
  return sum.expand({heads_, num_nodes(), num_nodes()});
}

MaskProfile SumMask::profile() const {
  MaskProfile joined = joined_profile(*this, masks_, merged_->num_entries());
  for (const MaskPtr& mask : masks_) {
    const std::int64_t rank = mask->profile().rank;
    if (rank == 0) {
      joined.rank = 0;
      break;
    }
    joined.rank += rank;
  }
  return joined;
}

}  // namespace topomask
