// Topological masks as linear operators.
//
// Masked linear attention needs only products with a mask M: row i of (M . phi(Q) phi(K)^T) V is
// phi(q_i)^T [M (phi(K) x V)]_i. So a Mask multiplies columns, forward and transposed. It may offer more: its
// entries if it is sparse, its factors if it has low rank, its matrix if it is small. The planner chooses
// among what a mask offers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace topomask {

// A sparse pattern together with its transpose, fixed for a graph; values come and go with the parameters.
struct SparsePattern {
  at::Tensor row_ptr;           // [N+1] int64
  at::Tensor col;               // [nnz] int32, ascending within a row
  at::Tensor transposed_ptr;    // [N+1] int64
  at::Tensor transposed_row;    // [nnz] int32: row of each entry, column by column
  at::Tensor transposed_entry;  // [nnz] int64: its position in `col`
  // Hints for a GPU; results do not depend on them but for rounding in bfloat16.
  at::Tensor order;               // [N] int32, or undefined: the order in which rows are worked on
  std::int64_t longest_row = -1;  // an upper bound of a row's entries, where one is known
  // On a GPU `col` may be longer than row_ptr[N] says. The entries beyond are in no row and hold column 0;
  // values are 0 there, and so are gradients. The host then need not know how many entries there are.
  bool padded = false;

  std::int64_t num_nodes() const { return row_ptr.size(0) - 1; }
  std::int64_t nnz() const { return col.size(0); }
  c10::Device device() const { return row_ptr.device(); }
  // row_ptr: [N+1] int64, col: [nnz] int32 ascending within a row, on one device. On a GPU the columns are
  // not checked, and the transpose is built when it is first needed. num_columns: -1 where there are as many
  // as rows; else on the CPU alone, and transposed_ptr is [num_columns+1].
  static SparsePattern from_rows(at::Tensor row_ptr, at::Tensor col, std::int64_t num_columns = -1);
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
struct Factors {
  at::Tensor left, right;  // [1 or heads, N, R]
};

// M = left right^T with sparse factors, as graph random features have them.
struct SparseFactors {
  SparseEntries left, right;
};

// What the planner needs to know about a mask, as plain data.
struct MaskProfile {
  std::string name;
  std::int64_t num_nodes = 0;
  std::int64_t heads = 1;
  std::int64_t entries = -1;      // nonzeros over all patterns; -1: M is not sparse
  bool entries_counted = true;    // false: `entries` is an estimate or an upper bound
  bool pattern_per_head = false;  // each head has a pattern of its own
  double far_share = 0;           // of the entries: those far from the diagonal, by a sample; 0 on a GPU
  std::int64_t rank = 0;          // of the low-rank factors; 0: there are none
  bool sparse_factors = false;    // M = left right^T with sparse factors
  // Their nonzeros over all patterns.
  std::int64_t left_entries = 0, right_entries = 0;
  // Multiply-adds for new values of the entries, over all patterns and for one head each; 0: they are given.
  double value_multiply_adds = 0;
  // To multiply one column, in float32.
  double multiply_adds_per_column = 0, bytes_per_column = 0;

  bool sparse() const { return entries >= 0; }
};

class Mask {
 public:
  virtual ~Mask() = default;

  virtual std::string name() const = 0;
  virtual std::int64_t num_nodes() const = 0;
  // 1: the same mask for every head.
  virtual std::int64_t heads() const { return 1; }
  // Where the mask computes; none: wherever x is. The default is where its first parameter is.
  virtual std::optional<c10::Device> device() const;
  // Where the diagonal blocks of a batch of graphs begin: ascending from 0 to num_nodes(); empty: one block.
  virtual std::vector<std::int64_t> blocks() const { return blocks_; }
  void set_blocks(std::vector<std::int64_t> blocks) { blocks_ = std::move(blocks); }

  // Tensors that gradients flow to; empty for a fixed mask. A mask that is part of another twice lists its
  // parameters twice.
  virtual std::vector<at::Tensor> parameters() const { return {}; }
  // The same mask with other tensors in their place, in the order of parameters() and of the same shapes.
  // What belongs to the graph is shared, so that this costs next to nothing.
  virtual std::shared_ptr<const Mask> with_parameters(const std::vector<at::Tensor>& parameters) const = 0;

  // y_h = M_h x_h, or M_h^T x_h. x: [H, N, C], H = heads() or, where heads() is 1, anything; float32 or
  // float64, on the mask's device. Differentiable in x and in the parameters.
  virtual at::Tensor multiply(const at::Tensor& x, bool transposed = false) const = 0;

  virtual MaskProfile profile() const = 0;
  // What the profile says is there; each throws where it is not. All are differentiable in the parameters.
  virtual std::vector<SparseEntries> entries() const;  // one element (heads share a pattern) or one per head
  // The patterns of the entries, without their values.
  virtual std::vector<std::shared_ptr<const SparsePattern>> patterns() const;
  virtual Factors factors() const;
  virtual std::vector<SparseFactors> sparse_factors() const;  // one element, or one per head
  // [heads(), N, N] in the given dtype. The default writes out the entries or factors, or multiplies the
  // identity.
  virtual at::Tensor dense(at::ScalarType dtype) const;

  // The way back: gradients of the parameters from those of the values of entries(), one for each pattern.
  // Undefined where a parameter does not matter. Records no graph; needs the values again only where the mask
  // does not know better.
  virtual std::vector<at::Tensor> entry_gradients(const std::vector<at::Tensor>& of_values) const;

 private:
  std::vector<std::int64_t> blocks_;
};

using MaskPtr = std::shared_ptr<const Mask>;

}  // namespace topomask
