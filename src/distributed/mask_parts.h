// What a DistributedGrfMask keeps of its graph on one rank, and the exchanges of both engines.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "distributed/node_exchange.h"
#include "masks/sparse_ops.h"
#include "topomask/distributed.h"

namespace topomask {

// Some rows of M = Phi Psi^T. Rows and columns have numbers of their own, and so have the columns of Phi. The
// kernels of a GPU take square matrices alone: there, rows and columns without entries make up what is
// missing.
struct MaskPiece {
  WalkFeatures query, key;  // key: undefined tensors where the keys are one-hot
  std::shared_ptr<const SparsePattern> query_pattern;
  ProductPatterns product;  // empty where the keys are one-hot

  bool empty() const { return query.nnz() == 0; }
  bool one_hot_keys() const { return product.product == nullptr; }
  std::int64_t query_rows() const { return query.num_nodes(); }
  std::int64_t key_rows() const { return one_hot_keys() ? query.num_columns : key.num_nodes(); }
  const std::shared_ptr<const SparsePattern>& pattern() const {
    return one_hot_keys() ? query_pattern : product.product;
  }
  // f: [heads, terms] or, with an f of the keys' own, [heads, 2, terms]. [heads, nnz]; differentiable in f.
  at::Tensor values(const at::Tensor& f) const;
};
at::Tensor query_part(const at::Tensor& f);  // [heads, terms]
at::Tensor key_part(const at::Tensor& f);

// [..., rows, C] of [..., fewer, C]: rows of zeros behind the others.
at::Tensor with_empty_rows(const at::Tensor& x, std::int64_t rows);

// Own rows, split by whether they need other ranks.
struct MaskRows {
  MaskPiece interior;     // [n, n] in own rows; those of the boundary do not count
  MaskPiece boundary;     // [b, t + h]: the columns are `touched`, then the halo
  at::Tensor rows;        // [b] int64: the own rows of the boundary
  at::Tensor touched;     // [t] int64: own nodes that they meet
  NodeExchange exchange;  // of the h nodes of the halo
};
// Tensors end up on the device. Collective, as all that make something here.
MaskRows make_mask_rows(const DistributedGraph& graph, const DistributedFeatures& features,
                        c10::Device device);

// Phi and Psi with the columns of others behind the own ones.
struct MaskColumns {
  struct Side {
    std::shared_ptr<const SparsePattern> pattern;  // [n, n + u], on a GPU with u empty rows
    WalkFeatures features;                         // as they were sampled
    at::Tensor order;       // [nnz] int64: where the pattern's entries stand in the features
    NodeExchange exchange;  // of the u columns of others
  };
  Side query, key;  // key: no pattern where the keys are one-hot
};
MaskColumns make_mask_columns(const DistributedGraph& graph, const DistributedFeatures& features,
                              c10::Device device);

// Bytes that the feature engine takes for a block of features by default.
inline constexpr std::int64_t kColumnWorkspace = std::int64_t{2} << 30;

// sum over columns of (entries of Phi) x (entries of Psi), and the entries of both, over all ranks.
// Collective.
struct PairCounts {
  double pairs = 0, entries = 0;
};
PairCounts count_pairs(const DistributedGraph& graph, const DistributedFeatures& features);
// The engine of linear attention with less work for m features and d_v values. Pairs bound the nonzeros of M:
// each costs one product of m and one of d_v; an entry of Phi or Psi costs one for every feature and value.
Engine engine_for(const PairCounts& counts, double m, double d_v);

struct DistributedGrfMask::Symbolic {
  explicit Symbolic(std::shared_ptr<const DistributedGraph> of) : graph(std::move(of)) {}
  std::shared_ptr<const DistributedGraph> graph;
  DistributedFeatures features;
  std::once_flag pairs_once;
  std::mutex parts_mutex;
  std::unordered_map<c10::Device, MaskRows> rows_;
  std::unordered_map<c10::Device, MaskColumns> columns_;
  PairCounts pairs_;
  // Without gradients the values of M are cached, with the numbers of f as the key.
  std::mutex mutex;
  at::Tensor kept_f, kept_interior, kept_boundary;

  // Where f is.
  const MaskRows& rows(c10::Device device);
  const MaskColumns& columns(c10::Device device);
  const PairCounts& pairs();
  // Those of M: interior, boundary; [heads, nnz] each.
  std::pair<at::Tensor, at::Tensor> values(const at::Tensor& f);
};

// The identity, whose gradient is summed over the ranks in their order.
at::Tensor with_summed_gradient(const RanksPtr& ranks, const at::Tensor& x);
// The sum over the ranks in their order, and so is its gradient.
at::Tensor sum_over_ranks(const RanksPtr& ranks, const at::Tensor& x);

// M x, or M^T x, for an f whose gradient need not be summed.
at::Tensor multiply_by_columns(const MaskColumns& columns, const at::Tensor& f, const at::Tensor& x,
                               bool transposed);

}  // namespace topomask
