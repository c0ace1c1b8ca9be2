// |M|, entry by entry: how the models use a learned mask.
//
// Learnable coefficients may change sign during training, and a row of signed weights can sum to nothing.
// The magnitude keeps every normaliser positive; its derivative is the sign of the entry, and 0 where the
// entry is 0, so that an entry that no walk reaches stays out of reach. A kernel that is positive already,
// as every series with positive coefficients on positive weights, is left as it is.
#pragma once

#include "topomask/mask.h"

namespace topomask {

// Knows entries and the dense matrix where its part does; the magnitude of a product is no product, so the
// factors are lost.
class AbsoluteMask final : public Mask {
 public:
  explicit AbsoluteMask(MaskPtr mask);
  std::string name() const override;
  std::int64_t num_nodes() const override { return mask_->num_nodes(); }
  std::int64_t num_heads() const override { return mask_->num_heads(); }
  std::vector<at::Tensor> parameters() const override { return mask_->parameters(); }
  // Through the entries where there are any, else through the dense matrix.
  at::Tensor apply(const at::Tensor& x) const override;
  at::Tensor apply_transposed(const at::Tensor& x) const override;
  bool has_entries() const override { return mask_->has_entries(); }
  std::vector<SparseEntries> entries() const override;
  bool entries_per_head() const override { return mask_->entries_per_head(); }
  std::int64_t num_entries_total() const override { return mask_->num_entries_total(); }
  at::Tensor dense(at::ScalarType dtype) const override;
  MaskCost cost() const override;

 private:
  at::Tensor apply_either(const at::Tensor& x, bool transposed) const;

  MaskPtr mask_;
};

}  // namespace topomask
