// What attention over ranks (distributed.h) will need of each rank, predicted in one process: memory, bytes
// sent and seconds, for graphs of up to 2^31 - 1 nodes.
//
// What a rank holds and sends is counted on the graph in this process, cut as the ranks would cut it. If the
// graph is too large for that, counts of smaller graphs are scaled, and the plan says which and how. Seconds
// come from the rates of the planner (device_profile.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/attention.h"
#include "topomask/distributed.h"
#include "topomask/features.h"
#include "topomask/graph_spec.h"
#include "topomask/partition.h"

namespace topomask {

// Of one rank.
struct RankCounts {
  double nodes = 0, entries = 0;               // own rows of W
  double halo = 0, sends = 0;                  // of W, as in PartSummary
  double cut_entries = 0;                      // columns of own rows that others own
  double reach_rows = 0, reach_entries = 0;    // rows of others that walks may visit, see WalkRoute::halo
  double features = 0, deposits = 0;           // of Phi
  double key_features = 0, key_deposits = 0;   // of Psi; 0 where it is Phi, or one-hot
  double mask_entries = 0, boundary_rows = 0;  // of M
  double mask_halo = 0, mask_sends = 0;        // rows of K and V that come and go in a pass
  double query_columns = 0, query_sends = 0, key_columns = 0;  // as DistributedGrfMask::Counts has them
  double sent_key_entries = 0, sent_key_deposits = 0;          // of Psi, once, when the mask is made
  double introductions = 0;                                    // the same: who meets whose columns
  double pairs = 0;  // of entries of Phi and Psi in one column, of own columns
};
struct RankCountField {
  std::string_view name;
  double RankCounts::*member;
};
std::span<const RankCountField> rank_count_fields();

// Counts what each rank of such a partition would hold and send. `graph`: W, normalised.
std::vector<RankCounts> count_ranks(const Graph& graph, const Partition& partition,
                                    const FeatureOptions& options);

// Bytes that such a rank sends in a forward pass of m query and key features and d values per head, float32:
// rows of K and V once for each rank that needs them, or a partial sum and a sum for each shared column.
double forward_bytes(const RankCounts& counts, Engine engine, std::int64_t heads, std::int64_t m,
                     std::int64_t d);

struct RankPlanOptions {
  std::int64_t ranks = 2;
  PartitionMethod method = PartitionMethod::metis;
  LoadOptions loading;
  Normalisation normalisation = Normalisation::symmetric;
  FeatureOptions features;
  std::int64_t heads = 1;                             // with one set of walks
  std::int64_t channels = 64;                         // m, query and key features of a head
  std::int64_t values = 64;                           // d, value channels of a head
  bool learned = true;                                // with a backward pass, and gradients of f
  std::string device = "cpu";                         // a device_profile
  at::ScalarType dtype = at::kFloat;                  // of q, k and v; float32 between ranks
  double link_bandwidth = 0;                          // bytes per second that a rank sends; 0: the profile's
  std::int64_t most_counted = std::int64_t{1} << 20;  // nodes of a graph that is counted as it is
};

struct RankMemory {
  std::string_view use;
  double bytes = 0;
};

struct RankPlan {
  std::int64_t nodes = 0, ranks = 0;
  std::string source;  // where the counts come from: a sentence
  bool scaled = false;
  RankCounts mean, largest;  // of a rank; `largest` has the most of each
  Engine engine = Engine::mask;
  WalkRoute route = WalkRoute::halo;
  std::vector<RankMemory> memory;  // what the largest rank holds at its peak
  double memory_total = 0;
  double memory_limit = 0;  // of the device; 0: not known
  bool fits() const { return memory_limit == 0 || memory_total <= memory_limit; }
  // Sent by a rank on average, and by the one that sends most.
  double bytes_once = 0, bytes_once_most = 0;  // walks and the mask's pattern
  double bytes_forward = 0, bytes_forward_most = 0;
  double bytes_backward = 0, bytes_backward_most = 0;
  // Of a forward pass on the largest rank. The exchange overlaps with rows that need no other rank.
  double seconds_compute = 0, seconds_exchange = 0, seconds_forward = 0;
  double link_bandwidth = 0;
  std::string to_string() const;
};

// One rank on a GPU is planned as attention without ranks (memory_plan.h).
// `graph`: as load_graph takes it; a family of graphs (graph_family.h) may be far too large to be made.
// `progress(done, total)` may be empty.
RankPlan plan_ranks(const std::string& graph, const RankPlanOptions& options,
                    const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace topomask
