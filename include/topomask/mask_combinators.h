// Combinations of masks. Each keeps the structure of its parts: entries if all parts have entries, and so on.
// Parts with one head serve every head.
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
  std::string name() const override;
  std::int64_t num_nodes() const override { return masks_.front()->num_nodes(); }
  std::vector<std::int64_t> blocks() const override;
  std::int64_t heads() const override { return heads_; }
  std::vector<at::Tensor> parameters() const override;
  std::optional<c10::Device> device() const override;
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  std::vector<SparseEntries> entries() const override;
  Factors factors() const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  std::vector<MaskPtr> masks_;
  std::int64_t heads_;
  std::shared_ptr<MergedEntries> merged_;
};

// diag(r) M diag(c).
class ScaledMask final : public Mask {
 public:
  // `row_scale`, `column_scale`: [N] or [H, N], float32 or float64; an undefined tensor stands for ones.
  ScaledMask(MaskPtr mask, at::Tensor row_scale, at::Tensor column_scale);
  std::string name() const override;
  std::int64_t num_nodes() const override { return mask_->num_nodes(); }
  std::vector<std::int64_t> blocks() const override { return mask_->blocks(); }
  std::int64_t heads() const override { return heads_; }
  std::vector<at::Tensor> parameters() const override;
  std::optional<c10::Device> device() const override;
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  std::vector<SparseEntries> entries() const override;
  Factors factors() const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  MaskPtr mask_;
  at::Tensor row_scale_, column_scale_;
  std::int64_t heads_;
};

// The patterns of a GlobalTokensMask, made when entries are first asked for.
struct GlobalTokenPatterns;

// Global tokens (CLS, virtual node): the first G of G + N tokens see and are seen by all with mask 1, at
// O(N).
class GlobalTokensMask final : public Mask {
 public:
  // `patterns`: those of an earlier one, which are taken over where the sizes are the same. Whoever makes one
  // in every step makes its patterns once.
  GlobalTokensMask(MaskPtr mask, std::int64_t num_global,
                   std::shared_ptr<GlobalTokenPatterns> patterns = nullptr);
  const std::shared_ptr<GlobalTokenPatterns>& shared_patterns() const { return patterns_; }
  std::string name() const override;
  std::int64_t num_nodes() const override { return num_global_ + mask_->num_nodes(); }
  std::int64_t heads() const override { return mask_->heads(); }
  std::int64_t num_global() const { return num_global_; }
  std::vector<at::Tensor> parameters() const override { return mask_->parameters(); }
  std::optional<c10::Device> device() const override { return mask_->device(); }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  std::vector<SparseEntries> entries() const override;
  Factors factors() const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  MaskPtr mask_;
  std::int64_t num_global_;
  std::shared_ptr<GlobalTokenPatterns> patterns_;
};

// A batch of different graphs: the masks stand one after the other on the diagonal.
class BlockDiagonalMask final : public Mask {
 public:
  explicit BlockDiagonalMask(std::vector<MaskPtr> masks);
  std::string name() const override;
  std::int64_t num_nodes() const override { return ptr_.back(); }
  std::int64_t heads() const override { return heads_; }
  // Block b holds the nodes blocks()[b] to blocks()[b + 1] - 1.
  std::vector<std::int64_t> blocks() const override { return ptr_; }
  std::vector<at::Tensor> parameters() const override;
  std::optional<c10::Device> device() const override;
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  std::vector<SparseEntries> entries() const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  std::vector<MaskPtr> masks_;
  std::vector<std::int64_t> ptr_;
  std::int64_t heads_;
  std::shared_ptr<MergedEntries> merged_;
};

// |M|, entry by entry: how the models use a learned mask. Learnable coefficients may change sign during
// training, and a row of signed weights can sum to nothing; the magnitude keeps every normaliser positive.
// Its derivative is the sign of the entry, and 0 where the entry is 0. The factors of M are lost: the
// magnitude of a product is not a product.
class AbsoluteMask final : public Mask {
 public:
  explicit AbsoluteMask(MaskPtr mask);
  std::string name() const override;
  std::int64_t num_nodes() const override { return mask_->num_nodes(); }
  std::vector<std::int64_t> blocks() const override { return mask_->blocks(); }
  std::int64_t heads() const override { return mask_->heads(); }
  std::vector<at::Tensor> parameters() const override { return mask_->parameters(); }
  // Through the entries where there are any, else through the dense matrix.
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override;
  std::vector<SparseEntries> entries() const override;
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskProfile profile() const override;
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override;

 private:
  MaskPtr mask_;
};

}  // namespace topomask
