// Which rows are copied where. The gradient of copies is a sum that atomics would add up in any order; with
// the copies listed by the row that they come from, a GPU gives the same bits every time.
#pragma once

#include <ATen/core/Tensor.h>

namespace topomask {

// [rows+1] int64 and [copies] int32: the copies of each row, in their order. Undefined where no kernel adds
// them up.
struct CopiesByRow {
  at::Tensor ptr, entry;
};

class RowCopies {
 public:
  RowCopies() = default;
  // index: any shape, int64, of `rows` rows.
  RowCopies(const at::Tensor& index, std::int64_t rows);

  const at::Tensor& index() const { return index_; }
  // [rows, C] -> [copies, C], in the order of the index; differentiable.
  at::Tensor of(const at::Tensor& x) const;

 private:
  at::Tensor index_;  // as given
  CopiesByRow by_row_;
};

}  // namespace topomask
