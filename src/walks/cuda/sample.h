// All walks of a graph on a GPU, as paths or as coalesced features. Framework-free: device pointers and a
// stream in, a status out.
//
// A team of threads samples the walks of one start node into shared memory, sorts the visits by (node, hop,
// walker) and sums equal (node, hop) pairs in that order: the pattern and every bit of the loads are those of
// the CPU, whatever the grid. Rows go to a staging area in the order in which teams finish and are moved to
// their places once all sizes are known; walks never reach global memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/primitives.h"

namespace topomask {

struct DeviceGraph {
  std::int64_t num_nodes = 0;
  std::int64_t out_degree = -1;               // entries of every row where they are as many, or -1
  const std::int64_t* row_ptr = nullptr;      // [N+1]
  const std::int32_t* col = nullptr;          // [E]
  const float* weight = nullptr;              // [E]
  const std::uint32_t* edge_below = nullptr;  // [E] weighted steps only, see NeighbourTable
  const float* edge_factor = nullptr;         // [E] weighted steps only
};

// WalkPlan as the kernels take it, by value.
struct DeviceWalkPlan {
  static constexpr int kInlineHops = 48;

  std::int32_t num_walks = 0;
  int max_hops = 0;
  bool always_max = false, antithetic = false, repelling = false, weighted_steps = false,
       importance_weights = true;
  std::uint32_t key0 = 0, key1 = 0, ensemble = 0;
  const std::uint32_t* halt_table = nullptr;  // [max_hops] on the device, or null: inline
  const float* continue_table = nullptr;      // [max_hops] on the device, or null: inline
  std::uint32_t halt_inline[kInlineHops] = {};
  float continue_inline[kInlineHops] = {};

  constexpr std::uint32_t halt_below(int hop) const {
    return halt_table != nullptr ? halt_table[hop] : halt_inline[hop];
  }
  constexpr float inverse_continue(int hop) const {
    return continue_table != nullptr ? continue_table[hop] : continue_inline[hop];
  }
};

// edge_below and edge_factor of weighted steps, as make_neighbour_table has them. One thread per row: the
// sums run in the order of the entries.
cudaError_t prepare_weighted_steps(const DeviceGraph& graph, bool importance_weights,
                                   std::uint32_t* edge_below, float* edge_factor, cudaStream_t stream);

// Counters that teams share; the host reads them when all rows are done.
struct FeatureStatus {
  unsigned long long staged;           // deposits taken from the staging area
  unsigned long long overflow_rows;    // rows that did not fit, in shared memory or in the staging area
  unsigned long long overflow_visits;  // their visits in all ...
  unsigned long long overflow_most;    // ... and the most in one row
  unsigned long long irregular;        // enumeration met a degree that is neither 0 nor out_degree
};

struct FeatureRowsArguments {
  DeviceWalkPlan plan;
  DeviceGraph graph;
  std::int32_t first_row = 0, num_rows = 0;
  const std::int32_t* row_list = nullptr;  // [num_rows] rows less first_row, or null: all in turn
  std::int32_t out_degree = -1;            // >= 0: enumerate all walks of a graph of this out-degree
  int walk_bits = 0;                       // of a walk's number; hop and walk share 32 bits

  bool team_is_block = false;
  int capacity = 0;         // visits a team has room for, a power of two
  char* scratch = nullptr;  // [num_blocks * team_bytes] for teams whose arrays exceed shared memory, or null
  std::size_t team_bytes = 0;   // from feature_team_bytes
  std::int32_t num_blocks = 0;  // of block teams

  // Staging: a row's deposits and entries begin at stage_at[row].
  float* stage_load = nullptr;          // [stage_capacity]
  std::int16_t* stage_hop = nullptr;    // [stage_capacity]
  std::int32_t* stage_col = nullptr;    // [stage_capacity]
  std::int32_t* stage_first = nullptr;  // [stage_capacity] first deposit of an entry within its row
  std::int64_t stage_capacity = 0;
  std::int64_t stage_mark = 0;  // added to stage_at: which staging area this is

  std::int32_t* entries = nullptr;   // [rows] out
  std::int32_t* deposits = nullptr;  // [rows] out
  std::int64_t* stage_at = nullptr;  // [rows] out
  FeatureStatus* status = nullptr;
  std::int32_t* overflow_list = nullptr;  // [rows] out: rows less first_row
};

// Bytes of a team's arrays, and the most that fit shared memory.
std::size_t feature_team_bytes(int capacity, const DeviceWalkPlan& plan, bool enumerate);
constexpr std::size_t kMaxWarpTeamBytes = 48 * 1024;
constexpr std::size_t kMaxBlockTeamBytes = 200 * 1024;

cudaError_t sample_feature_rows(const FeatureRowsArguments& arguments, cudaStream_t stream);

// The enumeration of up to 64 visits a row (enumerate.cu), which sample_feature_rows calls where it can.
bool enumerates_in_slots(const FeatureRowsArguments& arguments);
cudaError_t enumerate_in_slots(const FeatureRowsArguments& arguments, cudaStream_t stream);

// The same with rows straight to their places, without a stage: one launch instead of four. All of
// `arguments` that has to do with staging may be null.
struct EnumeratedRows {
  std::int64_t capacity = 0;            // of col; entries beyond the last row get column 0 and no deposits
  std::int64_t* row_ptr = nullptr;      // [rows+1]
  std::int32_t* col = nullptr;          // [capacity]
  std::int64_t* deposit_ptr = nullptr;  // [capacity+1]
  std::int16_t* hop = nullptr;          // [deposits]
  float* load = nullptr;                // [deposits]
  unsigned long long* tile_words = nullptr;  // [enumeration_tiles(rows)] zeros, scratch
};
bool enumerates_in_place(const FeatureRowsArguments& arguments);
std::int64_t enumeration_tiles(std::int64_t num_rows);
cudaError_t enumerate_in_place(const FeatureRowsArguments& arguments, const EnumeratedRows& out,
                               cudaStream_t stream);

constexpr std::int64_t kSecondStage = std::int64_t{1} << 62;

// Moves staged rows to their places. Rows marked with kSecondStage are read from the second of each pair.
struct CompactArguments {
  std::int32_t num_rows = 0;
  const float* stage_load[2] = {};
  const std::int16_t* stage_hop[2] = {};
  const std::int32_t* stage_col[2] = {};
  const std::int32_t* stage_first[2] = {};
  const std::int64_t* stage_at = nullptr;
  const OffsetPair* offset = nullptr;   // [rows+1] first entry and first deposit of a row
  std::int64_t capacity = 0;            // of col; entries beyond the last row get column 0 and no deposits
  std::int64_t* row_ptr = nullptr;      // [rows+1] out
  std::int32_t* col = nullptr;          // [capacity] out
  std::int64_t* deposit_ptr = nullptr;  // [capacity+1] out
  std::int16_t* hop = nullptr;          // [deposits] out
  float* load = nullptr;                // [deposits] out
};
cudaError_t compact_feature_rows(const CompactArguments& arguments, cudaStream_t stream);

// One entry a row, on the diagonal, with a deposit of 1 at hop 0. row_ptr: [N+1], col, hop, load: [N].
cudaError_t write_one_hot(std::int64_t num_nodes, std::int64_t* row_ptr, std::int32_t* col, std::int16_t* hop,
                          float* load, cudaStream_t stream);

// paths: [N, num_walks, hops + 1], -1 where a walk is over. `scratch` as above, for repelling walkers beyond
// 32.
struct PathArguments {
  DeviceWalkPlan plan;
  DeviceGraph graph;
  std::int64_t hops = 0;
  std::int32_t* paths = nullptr;
  char* scratch = nullptr;  // [num_blocks * team_bytes], or null
  std::size_t team_bytes = 0;
  std::int32_t num_blocks = 0;
};
cudaError_t sample_paths(const PathArguments& arguments, cudaStream_t stream);

}  // namespace topomask
