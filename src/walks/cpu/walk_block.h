// One block of walkers, all walks of a few consecutive start nodes, advanced together hop by hop.
//
// The walkers of a block are numbered start by start: id = (start - first_start) * num_walks + walk. Lengths
// are drawn first (they need no memory access); the survivors of each hop are kept densely packed in id
// order, so that every vector lane works and the visits of one start node are contiguous within a hop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "walks/cpu/walk_plan.h"

namespace topomask {

struct WalkBlock {
  std::int64_t first_start = 0;
  std::int64_t num_starts = 0;
  std::int64_t num_walkers = 0;

  // Result: visits[hop_begin[h], hop_begin[h+1]) happened at hop h + 1, in ascending order of walker id.
  std::vector<std::int64_t> hop_begin;   // [hops+1]
  std::vector<std::int32_t> visit_node;  // padded by kPadding
  std::vector<float> visit_load;         // padded by kPadding
  std::vector<std::int32_t> visit_id;    // padded by kPadding; not filled in when all_walk_on
  bool all_walk_on = false;  // nobody ever drops out: every hop has one visit per walker, in order of ids

  // State of the live walkers, packed; each padded by kPadding.
  std::vector<std::int32_t> node, id, length;
  std::vector<float> load;
  std::vector<std::uint32_t> word[4];           // the step words of four hops
  std::vector<std::int32_t> start_of, walk_of;  // [num_walkers] of a walker id

  static constexpr std::int64_t kPadding =
      64;  // at least one full vector may be read or written past the end

  int num_hops() const { return static_cast<int>(hop_begin.size()) - 1; }
  void prepare(std::int64_t first, std::int64_t starts, const WalkPlan& plan);
  void reserve_visits(std::int64_t total);
};

// Both fill the result of a prepared block. The first needs uniform, non-repelling steps and a table with
// int32 indices; it runs on the widest vectors the machine has. The second does everything, walker by walker.
// Where both apply they give the same walks and loads, bit for bit.
bool walks_can_use_vectors(const WalkPlan& plan, const NeighbourTable& table);
void walk_block_vector(const WalkPlan& plan, const NeighbourTable& table, WalkBlock& block);
void walk_block_scalar(const WalkPlan& plan, const NeighbourTable& table, WalkBlock& block);

// A walker by itself, for walks that leave the rows at hand.
struct LooseWalker {
  std::int64_t start = 0;  // the number that random words are drawn for
  std::int32_t home = 0;   // the caller's
  std::int32_t walk = 0, node = 0, length = 0;
  float load = 1.0f;
};
int walk_length(const WalkPlan& plan, std::int64_t start, std::int64_t walk);
// Hop `hop` (from 0) of walkers that all have somewhere to go: changes nodes and loads, as the blocks do. All
// live walkers of one start that stand on one node must be there. May change their order.
void step_walkers(const WalkPlan& plan, const NeighbourTable& table, int hop, std::span<LooseWalker> walkers);

// The visits of an all_walk_on block as rows: out[walker, 1 + h] = node at hop h + 1, `stride` nodes apart.
void write_full_paths(const WalkBlock& block, std::int64_t stride, std::int32_t* out);

// How many start nodes make a block of good size: large enough to fill the vectors, small enough for the
// cache.
std::int64_t starts_per_block(const WalkPlan& plan);

}  // namespace topomask
