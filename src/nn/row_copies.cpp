#include "nn/row_copies.h"

#include <ATen/Functions.h>

#include "nn/gpu.h"

namespace topomask {

RowCopies::RowCopies(const at::Tensor& index, std::int64_t rows) : index_(index) {
  if (index.is_cuda()) by_row_ = copies_by_row_cuda(index, rows);
}

at::Tensor RowCopies::of(const at::Tensor& x) const {
  const at::Tensor flat = index_.flatten();
  return fuses_copies(x, by_row_) ? copied_rows_cuda(x, flat, by_row_) : x.index_select(0, flat);
}

}  // namespace topomask
