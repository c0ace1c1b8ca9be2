// Memory of masked attention on one GPU, from the graph to the result, predicted before any of it is
// allocated.
//
// What walks and masks hold is counted on the graph, on a part of it or on a smaller graph of its family, and
// scaled. Bytes follow from the counts: every step of the chain allocates tensors of known sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/attention.h"
#include "topomask/features.h"
#include "topomask/graph.h"

namespace topomask {

struct ChainCounts {
  double nodes = 0, entries = 0;              // of W
  double features = 0, deposits = 0;          // of Phi
  double key_features = 0, key_deposits = 0;  // of Psi; 0 where it is Phi, or one-hot
  double pairs = 0;                           // of entries of Phi and Psi in one column
  double mask_entries = 0;                    // of M
  Ensembles ensembles = Ensembles::shared;
  std::int64_t heads = 1;  // of the mask: each has an f of its own
  std::string source;      // where the numbers come from: a sentence

  bool one_hot() const { return ensembles == Ensembles::asymmetric; }
  MaskProfile profile() const;  // as plan_attention takes it
};

// `graph`: W, normalised. Of a large graph up to `most` nodes around one in the middle are counted.
constexpr std::int64_t kMostCounted = std::int64_t{1} << 18;
ChainCounts count_chain(const Graph& graph, const FeatureOptions& options, std::int64_t most = kMostCounted);
// The same by a description (graph_spec.h) whose graph is not made. Nothing where that has no more than
// `most` nodes, or no family (graph_family.h).
std::optional<ChainCounts> count_chain(const std::string& spec, Normalisation normalisation,
                                       const FeatureOptions& options, std::int64_t most = kMostCounted);

struct MemoryStep {
  std::string_view name;
  double lasting = 0;  // bytes that stay until the end
  double peak = 0;     // most bytes held at one time, those of earlier steps included
};

struct MemoryPlan {
  std::vector<MemoryStep> steps;  // in their order
  double peak = 0;                // the largest of theirs

  const MemoryStep& highest() const;
  std::string to_string() const;  // a table
};

// `engine`: mask or feature. `backward`: gradients of q, k, v and f as well. shape.device is not used.
MemoryPlan plan_memory(const ChainCounts& counts, const AttentionShape& shape, Engine engine, bool backward);

}  // namespace topomask
