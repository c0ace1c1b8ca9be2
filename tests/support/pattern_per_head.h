// A sparse mask with a separate pattern for every head, as separate walks per head give.
#pragma once

#include <ATen/ops/matmul.h>

#include "masks/arguments.h"
#include "topomask/mask.h"

namespace topomask::testing {

class PatternPerHead final : public Mask {
 public:
  explicit PatternPerHead(std::vector<SparseEntries> entries) : entries_(std::move(entries)) {}
  std::string name() const override { return "pattern-per-head"; }
  std::int64_t num_nodes() const override { return entries_.front().pattern->num_nodes(); }
  std::int64_t heads() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> values;
    for (const SparseEntries& own : entries_) values.push_back(own.values);
    return values;
  }
  MaskPtr with_parameters(const std::vector<at::Tensor>& parameters) const override {
    std::vector<SparseEntries> entries = entries_;
    for (std::size_t h = 0; h < entries.size(); ++h) entries[h].values = parameters.at(h);
    return std::make_shared<PatternPerHead>(std::move(entries));
  }
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const override {
    const at::Tensor matrix = dense(x.scalar_type());
    return at::matmul(transposed ? matrix.transpose(1, 2) : matrix, x);
  }
  std::vector<SparseEntries> entries() const override { return entries_; }
  MaskProfile profile() const override {
    MaskProfile profile = basic_profile(*this, 0, 0);
    profile.pattern_per_head = true;
    profile.entries = 0;
    for (const SparseEntries& own : entries_) profile.entries += own.pattern->nnz();
    return profile;
  }

 private:
  std::vector<SparseEntries> entries_;
};

}  // namespace topomask::testing
