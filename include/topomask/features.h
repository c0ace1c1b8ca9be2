// Graph random features (Eq. 10; Alg. 1, line 2): sparse rows whose dot products estimate M_alpha(G).
//
// Features are computed and kept where their graph is. On a GPU they have the same pattern and the same
// loads, bit for bit.
//
// The pattern and the importance weights ("loads") are sampled once. The learnable modulation f is applied
// afterwards, so a new f costs one pass over the deposits and no walks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "topomask/graph.h"
#include "topomask/walks.h"
#include "topomask/words.h"

namespace topomask {

// phi_hat(v_i) for every node, coalesced: one entry per (start node, visited node), one deposit per
// (start node, visited node, hop). A deposit's load is the mean over the n walks of w~(omega)/p(omega).
struct WalkFeatures {
  at::Tensor row_ptr;      // [N+1] int64
  at::Tensor col;          // [nnz] int32, ascending within a row
  at::Tensor deposit_ptr;  // [nnz+1] int64
  at::Tensor hop;          // [deposits] int16, ascending within an entry
  at::Tensor load;         // [deposits] float32
  std::int64_t num_columns = 0;
  int max_hops = 0;
  bool exact = false;  // every walk was enumerated: the expectation of the loads, no randomness is left
  // An upper bound of the entries of a row, from the number of walks and their lengths; -1: unknown.
  std::int64_t longest_row = -1;
  // On a GPU: there is room for the most entries and deposits there can be, and only row_ptr[N] and
  // deposit_ptr[row_ptr[N]] tell how many there are. Entries beyond have column 0 and no deposits, so that
  // their values are 0.
  bool padded = false;

  std::int64_t num_nodes() const { return row_ptr.size(0) - 1; }
  std::int64_t nnz() const { return col.size(0); }
  std::int64_t num_deposits() const { return hop.size(0); }
  WalkFeatures to(c10::Device device) const;  // on another device without padding
  WalkFeatures trimmed() const;               // without padding; waits for the device where there is some

  // values[e] = sum over the deposits of entry e of load * f[hop]; differentiable in f.
  // f: [F] or [heads, F], float32 or float64, on the device of the features; f_k = 0 beyond F. Result: [nnz]
  // or [heads, nnz], dtype of f.
  at::Tensor values(const at::Tensor& modulation) const;
  // The backward pass: from gradients of the values, [heads, nnz], to those of f, [heads, terms]. Records no
  // graph.
  at::Tensor values_gradient(const at::Tensor& of_values, std::int64_t terms) const;
  at::Tensor to_dense(const at::Tensor& modulation) const;  // [N, num_columns], dtype of f; for small graphs
};

enum class Ensembles {
  shared,       // keys use the queries' walks: symmetric, diagonal biased upwards (docs/mathematics.md)
  independent,  // keys have walks of their own: unbiased everywhere
  asymmetric,   // keys are one-hot, f = alpha (App. D): unbiased everywhere
};

struct FeatureOptions {
  WalkOptions walks;
  Ensembles ensembles = Ensembles::shared;
  bool importance_weights = true;  // false: the ad-hoc variant, every visit counts 1 (Eq. 21)
  // Asymmetric ensembles on a GPU: pad the features (see WalkFeatures), so that the host never waits for
  // their size. It is always so while a CUDA graph is captured.
  bool padded = false;
};

// Phi and Psi with M_hat = Phi Psi^T. The key walks run on the transpose of W, so that the product estimates
// sum_k alpha_k W^k for directed graphs and for normalisations that are not symmetric as well.
struct GraphFeatures {
  WalkFeatures query;
  WalkFeatures key;  // the same tensors as `query` for shared ensembles on a symmetric W
  Ensembles ensembles = Ensembles::shared;
};

WalkFeatures sample_walk_features(const Graph& graph, const WalkOptions& options,
                                  bool importance_weights = true, bool padded = false);
GraphFeatures sample_features(const Graph& graph, const FeatureOptions& options);
WalkFeatures one_hot_features(std::int64_t num_nodes, c10::Device device = c10::kCPU);

template <>
std::span<const Word<Ensembles>> words<Ensembles>();

}  // namespace topomask
