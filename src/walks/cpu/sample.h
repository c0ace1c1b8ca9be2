// All walks of a graph, as paths or as coalesced features. Framework-free; parallel over start nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "walks/cpu/coalesce.h"
#include "walks/cpu/walk_plan.h"

namespace topomask {

// All functions start from the first `num_starts` nodes, or from all (-1). Columns and paths are rows of
// `graph`, whatever numbers its nodes have.

// paths: [N, num_walks, hops + 1], the start included, -1 after the end of a walk; hops >= plan.max_hops.
void sample_paths(const CsrView& graph, const WalkPlan& plan, std::int64_t hops, std::int32_t* paths,
                  std::int64_t num_starts = -1);

// The features of all nodes in pieces of consecutive rows, to be copied into arrays of the right size.
struct FeaturePieces {
  std::vector<FeatureRows> pieces;
  std::int64_t num_rows = 0, nnz = 0, num_deposits = 0;

  void copy_to(std::int64_t* row_ptr, std::int32_t* col, std::int64_t* deposit_ptr, std::int16_t* hop,
               float* load) const;
};
FeaturePieces sample_feature_pieces(const CsrView& graph, const WalkPlan& plan, std::int64_t num_starts = -1);
// The same rows of these nodes alone, enumerated where sample_walk_features enumerates.
FeatureRows sample_feature_rows(const CsrView& graph, const WalkPlan& plan,
                                const std::vector<std::int64_t>& starts);

// True if the walkers could share out all walks of up to max_hops evenly: repelling uniform steps, a fixed
// number of hops, one out-degree k for all nodes (0 allowed), and k^max_hops divides the number of walkers.
// The paper's point clouds: k = 3, 3 hops, 27 walkers. Walks that meet mix, so sampled walkers need not take
// each walk once; we return their expectation instead of a sample.
bool ensemble_is_exhaustive(const CsrView& graph, const WalkPlan& plan);
// The same, given the smallest and the largest degree of nodes that have neighbours; both are 0 if there are
// none.
bool ensemble_is_exhaustive(const WalkPlan& plan, std::int64_t least_degree, std::int64_t most_degree);
// That expectation, without random numbers: load (W^h)_ij for every hop h.
FeaturePieces enumerate_feature_pieces(const CsrView& graph, const WalkPlan& plan,
                                       std::int64_t num_starts = -1);

}  // namespace topomask
