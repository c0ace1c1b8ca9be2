// Graphs: the weighted adjacency matrix W of Sec. 3.1, as compressed sparse rows.
//
// Everything starts here: readers and builders make an `EdgeList`, `Graph::from_edges` turns it into rows
// under a policy, `normalise` gives the W on which walks and kernels are defined. A graph may live on a GPU
// (`to`); everything derived from it is then computed and kept there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "topomask/csr.h"
#include "topomask/edge_list.h"
#include "topomask/words.h"

namespace topomask {

enum class Normalisation {
  // W = A
  none,
  // W = D^-1/2 A D^-1/2 with D_ii = sum_j |A_ij|; directed: D_out^-1/2 A D_in^-1/2, row and column sums
  symmetric,
  // W = D^-1 A
  random_walk,
  // W = A / max_ij |A_ij| d_i, so that c of the concentration theorem is finite (Thm. 3.1)
  max_degree,
};

struct GraphSummary {
  std::int64_t nodes = 0;
  std::int64_t edges = 0;  // each undirected edge once
  bool directed = false;
  std::int64_t self_loops = 0;
  std::int64_t isolated = 0;                    // no edge in or out (a self-loop is an edge)
  std::int64_t components = 0;                  // weakly connected
  std::int64_t degree_min = 0, degree_max = 0;  // entries in a row: out-degree if directed
  double degree_mean = 0;
  double weight_min = 0, weight_max = 0;  // 0 when there are no edges
};

// An undirected graph stores each edge in both rows (a self-loop once).
struct Graph {
  at::Tensor row_ptr;  // [N+1] int64, non-decreasing
  at::Tensor col;      // [E] int32, ascending within a row
  at::Tensor weight;   // [E] float32, finite, may be negative
  bool directed = false;
  // Entries per row if every row is known to have the same number, else -1. On a GPU the host then knows the
  // sizes of everything derived from the graph, and never waits for them.
  std::int64_t out_degree = -1;

  Graph();  // no nodes
  // Trusts its arguments; from_csr_tensors checks them.
  Graph(at::Tensor row_ptr, at::Tensor col, at::Tensor weight, bool directed, std::int64_t out_degree = -1);

  // Takes over the vectors without a copy; trusts that the columns are in range and ascend.
  static Graph from_csr(CsrArrays rows, bool directed);
  // An edge of weight 0 is an edge here (and none in from_dense).
  static Graph from_edges(const EdgeList& edges, const GraphPolicy& policy = {});
  // `adjacency`: [N, N], any real dtype; zero means no edge. Directed unless it equals its transpose.
  static Graph from_dense(const at::Tensor& adjacency);
  // CSR tensors as SciPy or torch keep them: row_ptr [N+1] and col [E] int32 or int64, weight [E] real or
  // undefined (all 1). Columns need not be sorted; repeated ones stay parallel edges. Directed unless it
  // equals its transpose.
  static Graph from_csr_tensors(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight);

  std::int64_t num_nodes() const { return row_ptr.size(0) - 1; }
  std::int64_t num_entries() const { return col.size(0); }
  CsrView view() const;  // CPU only

  at::Tensor to_dense() const;  // [N, N] float64
  Graph transposed() const;
  bool is_symmetric() const;  // W equals its transpose, weights included
  Graph with_weight(at::Tensor new_weight) const;
  c10::Device device() const { return row_ptr.device(); }
  Graph to(c10::Device device) const;
  // Node i of the result is node order[i] of this graph. `order`: [N] int64, a permutation.
  Graph permuted(const at::Tensor& order) const;
};

// Where a degree is 0 the row (or column) stays 0. A graph of zero weights is left as it is by max_degree.
Graph normalise(const Graph& graph, Normalisation how);
GraphSummary summarise(const Graph& graph);

// Node orders that put neighbours near each other in memory. Each returns [N] int64: position -> old node.
at::Tensor reverse_cuthill_mckee(const Graph& graph);  // the direction of edges is ignored
at::Tensor morton_order(const at::Tensor& points);  // [N, D] float, D <= 3, finite; computed where they are
at::Tensor inverse_order(const at::Tensor& order);  // old node -> position

template <>
std::span<const Word<Normalisation>> words<Normalisation>();
template <>
std::span<const Word<Duplicates>> words<Duplicates>();
template <>
std::span<const Word<SelfLoops>> words<SelfLoops>();
template <>
std::span<const Word<Isolated>> words<Isolated>();
template <>
std::span<const Word<Components>> words<Components>();
template <>
std::span<const Word<Direction>> words<Direction>();

}  // namespace topomask
