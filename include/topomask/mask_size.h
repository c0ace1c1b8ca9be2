// The size of M_hat = Phi Psi^T, predicted before memory is allocated for it.
//
// The features of a node do not grow with the graph (Lemma 3.2), but their product does where many nodes
// share a visited node: on a graph with hubs, M may have an entry for nearly every pair of nodes. Asymmetric
// ensembles (App. D) have no product: their M is Phi itself.
#pragma once

#include <cstdint>
#include <string>

#include "topomask/features.h"
#include "topomask/graph.h"

namespace topomask {

struct MaskSize {
  double feature_entries = 0;  // of Phi
  double entries = 0;          // of M
  double entries_se = 0;       // standard error of that; 0 where the entries were counted
  double bytes = 0;            // of M: its pattern, the pattern's transpose and a float32 per head and entry
  // The same walks with Ensembles::asymmetric, which see max_hops far and not twice as far.
  double asymmetric_entries = 0, asymmetric_bytes = 0;
  std::string advice;  // one sentence if M takes more than `large_bytes`; else empty
};

struct MaskSizeOptions {
  std::int64_t heads = 1;  // with one set of walks
  double large_bytes = 1024.0 * 1024 * 1024;
};

// Walks from a random sample of nodes alone, 256 to 8192 as the precision needs; counts all pairs of a graph
// with no more. A graph on a GPU is copied to the CPU first.
MaskSize predict_mask_size(const Graph& graph, const FeatureOptions& options,
                           const MaskSizeOptions& limits = {});

}  // namespace topomask
