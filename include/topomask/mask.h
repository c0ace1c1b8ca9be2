// Topological masks as linear operators.
//
// Masked linear attention needs nothing of a mask M but its products: (M . phi(Q) phi(K)^T) V has row i equal
// to phi(q_i)^T [M (phi(K) x V)]_i. So a Mask is something that can be applied to columns, forward and
// transposed, and that may know more about itself: its entries if it is sparse, its factors if it has low
// rank, its matrix if it is small. The attention planner picks among what a mask knows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace topomask {

// A sparse pattern together with its transpose, fixed for a graph; values come and go with the parameters.
struct SparsePattern {
  at::Tensor row_ptr;           // [N+1] int64
  at::Tensor col;               // [nnz] int32, ascending within a row
  at::Tensor transposed_ptr;    // [N+1] int64
  at::Tensor transposed_row;    // [nnz] int32: row of each entry, column by column
  at::Tensor transposed_entry;  // [nnz] int64: its position in `col`
  // [N] int32, or undefined: rows in the order in which a GPU works on them. Neighbours in it share the
  // cache, wherever they stand in memory; results do not depend on it.
  at::Tensor order;
  // An upper bound of its entries where one is known, which spares a GPU counting.
  std::int64_t longest_row = -1;
  // On a GPU `col` may be longer than row_ptr[N] says. The entries beyond are in no row and hold column 0;
  // values are 0 there, and so are gradients. The host then need not know how many entries there are.
  bool padded = false;

  std::int64_t num_nodes() const { return row_ptr.size(0) - 1; }
  std::int64_t nnz() const { return col.size(0); }
  c10::Device device() const { return row_ptr.device(); }
  // Builds the transpose; on a GPU only when a kernel first needs it (transpose_of in
  // src/masks/sparse_ops.h). row_ptr: [N+1] int64, col: [nnz] int32 ascending within a row, on one device.
  // The columns of a pattern on a GPU are taken as they are, unchecked.
  static SparsePattern from_rows(at::Tensor row_ptr, at::Tensor col);
  // The same pattern there, with an order where that is worth it and none is known.
  SparsePattern to(c10::Device device) const;

  // What kernels derive from the pattern at their first use; shared by copies.
  struct Derived;
  std::shared_ptr<Derived> derived = make_derived();

 private:
  static std::shared_ptr<Derived> make_derived();
};

// One pattern and the values of the heads that use it; differentiable in the mask's parameters.
struct SparseEntries {
  std::shared_ptr<const SparsePattern> pattern;
  at::Tensor values;  // [1 or heads, nnz], floating point
};

// M_ij = sum_r left[i, r] right[j, r].
struct LowRankFactors {
  at::Tensor left, right;  // [1 or heads, N, R]
};

// M = left right^T with sparse factors, as graph random features have them.
struct SparseFactors {
  SparseEntries left, right;
};

// Rough cost of applying the mask to one column, for the planner.
struct MaskCost {
  double multiply_adds_per_column = 0;
  double bytes_per_column = 0;
};

class Mask {
 public:
  virtual ~Mask() = default;

  virtual std::string name() const = 0;
  virtual std::int64_t num_nodes() const = 0;
  // 1: the same mask for every head.
  virtual std::int64_t num_heads() const { return 1; }
  // Tensors that gradients flow to; empty for a fixed mask.
  virtual std::vector<at::Tensor> parameters() const { return {}; }
  // Where the mask computes; none: wherever x is. The default is where its first parameter is.
  virtual std::optional<c10::Device> device() const;

  // y_h = M_h x_h and y_h = M_h^T x_h. x: [H, N, C], H = num_heads() or, where num_heads() is 1, anything;
  // float32 or float64, on the mask's device. Differentiable in x and in the parameters.
  virtual at::Tensor apply(const at::Tensor& x) const = 0;
  virtual at::Tensor apply_transposed(const at::Tensor& x) const = 0;

  // What a mask may know about itself. Entries: one element (all heads share a pattern) or one per head.
  virtual bool has_entries() const { return false; }
  virtual std::vector<SparseEntries> entries() const;            // throws where has_entries() is false
  virtual bool entries_per_head() const { return false; }        // each head has a pattern of its own
  virtual std::int64_t num_entries_total() const { return -1; }  // over all patterns, -1: unknown
  virtual bool has_low_rank() const { return false; }
  virtual std::int64_t rank() const {
    return low_rank().left.size(-1);
  }                                         // without computing the factors where it can
  virtual LowRankFactors low_rank() const;  // throws where has_low_rank() is false

  // One element (all heads share the patterns) or one per head.
  virtual bool has_sparse_factors() const { return false; }
  virtual std::vector<SparseFactors> sparse_factors() const;  // throws where has_sparse_factors() is false

  // [num_heads(), N, N] in the given dtype, differentiable in the parameters. The default applies the mask to
  // the identity, or writes out the entries or factors.
  virtual at::Tensor dense(at::ScalarType dtype) const;

  virtual MaskCost cost() const = 0;
};

using MaskPtr = std::shared_ptr<const Mask>;

}  // namespace topomask
