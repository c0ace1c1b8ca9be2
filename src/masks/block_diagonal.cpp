#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "masks/arguments.h"
#include "masks/merged_entries.h"
#include "masks/parts.h"
#include "topomask/mask_combinators.h"

namespace topomask {

BlockDiagonalMask::BlockDiagonalMask(std::vector<MaskPtr> masks)
    : masks_(std::move(masks)), ptr_{0}, merged_(std::make_shared<MergedEntries>()) {
  check_parts("BlockDiagonalMask", masks_);
  for (const MaskPtr& mask : masks_) ptr_.push_back(ptr_.back() + mask->num_nodes());
  check(ptr_.back() <= std::numeric_limits<std::int32_t>::max(),
        "BlockDiagonalMask: masks must have fewer than 2^31 nodes in all, got {}", ptr_.back());
  heads_ = common_heads("BlockDiagonalMask", masks_);
  check_one_device("BlockDiagonalMask", masks_);
}

std::string BlockDiagonalMask::name() const {
  return fmt::format("block-diagonal({} x {})", masks_.size(), masks_.front()->name());
}

std::vector<at::Tensor> BlockDiagonalMask::parameters() const {
  return all_parameters(masks_);
}

std::optional<c10::Device> BlockDiagonalMask::device() const {
  return common_device(masks_);
}

MaskPtr BlockDiagonalMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  auto copy = std::make_shared<BlockDiagonalMask>(*this);
  copy->masks_ = with_all_parameters("BlockDiagonalMask", masks_, parameters);
  return copy;
}

at::Tensor BlockDiagonalMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  std::vector<at::Tensor> parts;
  for (std::size_t b = 0; b < masks_.size(); ++b) {
    const at::Tensor part = x.narrow(1, ptr_[b], ptr_[b + 1] - ptr_[b]);
    parts.push_back(masks_[b]->multiply(part, transposed));
  }
  return at::cat(parts, 1);
}

std::vector<SparseEntries> BlockDiagonalMask::entries() const {
  std::vector<PlacedEntries> parts;
  for (std::size_t b = 0; b < masks_.size(); ++b) parts.push_back({masks_[b]->entries(), ptr_[b]});
  return merged_->merge(num_nodes(), parts);
}

at::Tensor BlockDiagonalMask::dense(at::ScalarType dtype) const {
  std::vector<at::Tensor> bands;
  for (std::size_t b = 0; b < masks_.size(); ++b) {
    const std::int64_t rows = ptr_[b + 1] - ptr_[b];
    const at::Tensor block = on_device(masks_[b]->dense(dtype), device()).expand({heads_, rows, rows});
    const at::TensorOptions options = block.options().requires_grad(false);
    bands.push_back(at::cat({at::zeros({heads_, rows, ptr_[b]}, options), block,
                             at::zeros({heads_, rows, num_nodes() - ptr_[b + 1]}, options)},
                            2));
  }
  return at::cat(bands, 1);
}

MaskProfile BlockDiagonalMask::profile() const {
  return joined_profile(*this, masks_, merged_->num_entries());
}

}  // namespace topomask
