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
    : masks_(std::move(masks)), ptr_{0}, merged_(std::make_unique<MergedEntries>()) {
  check_parts("BlockDiagonalMask", masks_);
  for (const MaskPtr& mask : masks_) ptr_.push_back(ptr_.back() + mask->num_nodes());
  check(ptr_.back() <= std::numeric_limits<std::int32_t>::max(),
        "BlockDiagonalMask: masks must have fewer than 2^31 nodes in all, got {}", ptr_.back());
  num_heads_ = common_heads("BlockDiagonalMask", masks_);
  check_one_device("BlockDiagonalMask", masks_);
}

BlockDiagonalMask::~BlockDiagonalMask() = default;

std::string BlockDiagonalMask::name() const {
  return fmt::format("block-diagonal({} x {})", masks_.size(), masks_.front()->name());
}

std::vector<at::Tensor> BlockDiagonalMask::parameters() const {
  return all_parameters(masks_);
}

std::optional<c10::Device> BlockDiagonalMask::device() const {
  return common_device(masks_);
}

at::Tensor BlockDiagonalMask::apply_either(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  std::vector<at::Tensor> blocks;
  for (std::size_t b = 0; b < masks_.size(); ++b) {
    const at::Tensor part = x.narrow(1, ptr_[b], ptr_[b + 1] - ptr_[b]);
    blocks.push_back(transposed ? masks_[b]->apply_transposed(part) : masks_[b]->apply(part));
  }
  return at::cat(blocks, 1);
}

at::Tensor BlockDiagonalMask::apply(const at::Tensor& x) const {
  return apply_either(x, false);
}

at::Tensor BlockDiagonalMask::apply_transposed(const at::Tensor& x) const {
  return apply_either(x, true);
}

bool BlockDiagonalMask::has_entries() const {
  return all_have_entries(masks_);
}

std::vector<SparseEntries> BlockDiagonalMask::entries() const {
  std::vector<PlacedEntries> parts;
  for (std::size_t b = 0; b < masks_.size(); ++b) parts.push_back({masks_[b]->entries(), ptr_[b]});
  return merged_->merge(num_nodes(), parts);
}

bool BlockDiagonalMask::entries_per_head() const {
  return any_per_head(masks_);
}

std::int64_t BlockDiagonalMask::num_entries_total() const {
  const std::int64_t counted = merged_->num_entries();
  return counted >= 0 ? counted : bound_entries(masks_, num_heads_);
}

at::Tensor BlockDiagonalMask::dense(at::ScalarType dtype) const {
  std::vector<at::Tensor> bands;
  for (std::size_t b = 0; b < masks_.size(); ++b) {
    const std::int64_t rows = ptr_[b + 1] - ptr_[b];
    const at::Tensor block = on_device(masks_[b]->dense(dtype), device()).expand({num_heads_, rows, rows});
    const at::TensorOptions options = block.options().requires_grad(false);
    bands.push_back(at::cat({at::zeros({num_heads_, rows, ptr_[b]}, options), block,
                             at::zeros({num_heads_, rows, num_nodes() - ptr_[b + 1]}, options)},
                            2));
  }
  return at::cat(bands, 1);
}

MaskCost BlockDiagonalMask::cost() const {
  return total_cost(masks_);
}

}  // namespace topomask
