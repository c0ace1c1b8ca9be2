// Masks made of masks. Each keeps what its parts know: entries if all parts have entries, and so on. Parts
// with one head serve every head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "topomask/mask.h"

namespace topomask {

class MergedEntries;  // src/masks/merged_entries.h

// The sum of masks on the same nodes.
class SumMask final : public Mask {
 public:
  explicit SumMask(std::vector<MaskPtr> masks);
  ~SumMask() override;
  std::string name() const override;
  std::int64_t num_nodes() const override { return masks_.front()->num_nodes(); }
  std::int64_t num_heads() const override { return num_heads_; }
  std::vector<at::Tensor> parameters() const override;
  std::optional<c10::Device> device() const override;
  at::Tensor apply(const at::Tensor& x) const override;
  at::Tensor apply_transposed(const at::Tensor& x) const override;
  bool has_entries() const override;
  std::vector<SparseEntries> entries() const override;
  bool entries_per_head() const override;
  std::int64_t num_entries_total() const override;  // counted once merged, before that an upper bound
  bool has_low_rank() const override;
  LowRankFactors low_rank() const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskCost cost() const override;

 private:
  std::vector<MaskPtr> masks_;
  std::int64_t num_heads_;
  std::unique_ptr<MergedEntries> merged_;
};

// diag(r) M diag(c).
class ScaledMask final : public Mask {
 public:
  // `row_scale`, `column_scale`: [N] or [H, N], float32 or float64; an undefined tensor stands for ones.
  ScaledMask(MaskPtr mask, at::Tensor row_scale, at::Tensor column_scale);
  std::string name() const override;
  std::int64_t num_nodes() const override { return mask_->num_nodes(); }
  std::int64_t num_heads() const override { return num_heads_; }
  std::vector<at::Tensor> parameters() const override;
  std::optional<c10::Device> device() const override;
  at::Tensor apply(const at::Tensor& x) const override;
  at::Tensor apply_transposed(const at::Tensor& x) const override;
  bool has_entries() const override { return mask_->has_entries(); }
  std::vector<SparseEntries> entries() const override;
  bool entries_per_head() const override { return mask_->entries_per_head(); }
  std::int64_t num_entries_total() const override { return mask_->num_entries_total(); }
  bool has_low_rank() const override { return mask_->has_low_rank(); }
  LowRankFactors low_rank() const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskCost cost() const override;

 private:
  MaskPtr mask_;
  at::Tensor row_scale_, column_scale_;
  std::int64_t num_heads_;
};

// Global tokens (CLS, virtual node): the first G of G + N tokens see and are seen by all with mask 1, at
// O(N).
class GlobalTokensMask final : public Mask {
 public:
  GlobalTokensMask(MaskPtr mask, std::int64_t num_global);
  ~GlobalTokensMask() override;
  std::string name() const override;
  std::int64_t num_nodes() const override { return num_global_ + mask_->num_nodes(); }
  std::int64_t num_heads() const override { return mask_->num_heads(); }
  std::int64_t num_global() const { return num_global_; }
  std::vector<at::Tensor> parameters() const override { return mask_->parameters(); }
  std::optional<c10::Device> device() const override { return mask_->device(); }
  at::Tensor apply(const at::Tensor& x) const override;
  at::Tensor apply_transposed(const at::Tensor& x) const override;
  bool has_entries() const override { return mask_->has_entries(); }
  std::vector<SparseEntries> entries() const override;
  bool entries_per_head() const override;
  std::int64_t num_entries_total() const override;  // counted once merged, before that an upper bound
  bool has_low_rank() const override { return mask_->has_low_rank(); }
  LowRankFactors low_rank() const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskCost cost() const override;

 private:
  at::Tensor apply_either(const at::Tensor& x, bool transposed) const;

  MaskPtr mask_;
  std::int64_t num_global_;
  struct Symbolic;
  std::unique_ptr<Symbolic> symbolic_;  // patterns, made when entries are first asked for
};

// A batch of different graphs: the masks stand one after the other on the diagonal.
class BlockDiagonalMask final : public Mask {
 public:
  explicit BlockDiagonalMask(std::vector<MaskPtr> masks);
  ~BlockDiagonalMask() override;
  std::string name() const override;
  std::int64_t num_nodes() const override { return ptr_.back(); }
  std::int64_t num_heads() const override { return num_heads_; }
  // Block b holds the nodes ptr()[b] to ptr()[b + 1] - 1.
  const std::vector<std::int64_t>& ptr() const { return ptr_; }
  std::vector<at::Tensor> parameters() const override;
  std::optional<c10::Device> device() const override;
  at::Tensor apply(const at::Tensor& x) const override;
  at::Tensor apply_transposed(const at::Tensor& x) const override;
  bool has_entries() const override;
  std::vector<SparseEntries> entries() const override;
  bool entries_per_head() const override;
  std::int64_t num_entries_total() const override;  // counted once merged, before that an upper bound
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskCost cost() const override;

 private:
  at::Tensor apply_either(const at::Tensor& x, bool transposed) const;

  std::vector<MaskPtr> masks_;
  std::vector<std::int64_t> ptr_;
  std::int64_t num_heads_;
  std::unique_ptr<MergedEntries> merged_;
};

}  // namespace topomask
