// Walkers of one start node on a GPU: the same walks as walk_block_scalar.cpp, walker by walker.
//
// A team of threads takes the n walkers of a start; `visit(walker, hop, node, load)` is called for every
// step, in no particular order. Files that include this are compiled without fused multiply-adds, so that
// loads round as they do on the CPU.
#pragma once

#include "core/cuda/team.cuh"
#include "core/random.h"
#include "walks/cuda/sample.h"

namespace topomask {

// Constant indices only: an array indexed at run time would live in memory.
__device__ inline std::uint32_t pick_word(const RandomBlock& block, int k) {
  const std::uint32_t low = k & 1 ? block[1] : block[0], high = k & 1 ? block[3] : block[2];
  return k & 2 ? high : low;
}

__device__ inline RandomBlock draw(const DeviceWalkPlan& plan, std::int32_t start, std::uint32_t second,
                                   std::uint32_t third, Purpose purpose) {
  return philox({static_cast<std::uint32_t>(start), second, third,
                 plan.ensemble * 4 + static_cast<std::uint32_t>(purpose)},
                plan.key0, plan.key1);
}

__device__ inline int draw_length(const DeviceWalkPlan& plan, std::int32_t start, std::int32_t walk) {
  if (plan.always_max) return plan.max_hops;
  const std::int32_t half = plan.num_walks / 2;
  const bool partner = plan.antithetic && walk >= half;
  const auto key_walk = static_cast<std::uint32_t>(partner ? walk - half : walk);
  const std::uint32_t shift = partner ? 0x80000000u : 0u;  // (t + 1/2) mod 1
  for (int hop = 0; hop < plan.max_hops; hop += 4) {
    const RandomBlock block = draw(plan, start, key_walk, static_cast<std::uint32_t>(hop / 4), Purpose::halt);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (hop + k < plan.max_hops && block[k] + shift < plan.halt_below(hop + k)) return hop + k;
    }
  }
  return plan.max_hops;
}

__device__ inline std::int32_t weighted_choice(const DeviceGraph& graph, std::int64_t begin,
                                               std::int32_t degree, std::uint32_t word) {
  // The first edge whose threshold exceeds the word; the last one takes the rest.
  const std::uint32_t* below = graph.edge_below + begin;
  std::int32_t low = 0, high = degree - 1;
  while (low < high) {
    const std::int32_t middle = (low + high) / 2;
    if (word < below[middle]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

struct Walker {
  std::int32_t node;
  float load;
};

__device__ inline void take_step(const DeviceWalkPlan& plan, const DeviceGraph& graph, std::int64_t begin,
                                 std::int32_t degree, std::int32_t choice, int hop, Walker& walker) {
  const std::int64_t entry = begin + choice;
  walker.node = graph.col[entry];
  if (!plan.importance_weights) {
    walker.load = walker.load * 1.0f * plan.inverse_continue(hop);
    return;
  }
  const float factor = plan.weighted_steps
                           ? graph.edge_factor[entry]
                           : static_cast<float>(static_cast<double>(graph.weight[entry]) * degree);
  walker.load = walker.load * factor * plan.inverse_continue(hop);
}

// Where the walker of this rank goes, out of `size` live walkers of one start on one node; see
// RepellingGroup.
__device__ inline std::int32_t repelling_choice(const DeviceWalkPlan& plan, const DeviceGraph& graph,
                                                std::int32_t start, std::int32_t node, int hop,
                                                std::int32_t rank, std::int32_t size, std::int64_t begin,
                                                std::int32_t degree) {
  const bool systematic = plan.weighted_steps || size <= degree;
  const std::int32_t offset = systematic ? 0 : rank / degree;
  const RandomBlock block =
      draw(plan, start, static_cast<std::uint32_t>(node),
           static_cast<std::uint32_t>(hop) + (static_cast<std::uint32_t>(offset / 4) << 15), Purpose::repel);
  const std::uint32_t word = pick_word(block, offset % 4);
  if (systematic) {
    if (plan.weighted_steps) {
      rank = static_cast<std::int32_t>(
          shuffled_rank(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(size), block));
    }
    const auto spread = static_cast<std::uint32_t>(word + (static_cast<std::uint64_t>(rank) << 32) /
                                                              static_cast<std::uint64_t>(size));
    return plan.weighted_steps
               ? weighted_choice(graph, begin, degree, spread)
               : static_cast<std::int32_t>(scale_word(spread, static_cast<std::uint32_t>(degree)));
  }
  const auto rotation = static_cast<std::int32_t>(scale_word(word, static_cast<std::uint32_t>(degree)));
  return static_cast<std::int32_t>((static_cast<std::int64_t>(rank % degree) + rotation) % degree);
}

template <class Team, class Visit>
__device__ void walk_independently(const Team& team, const DeviceWalkPlan& plan, const DeviceGraph& graph,
                                   std::int32_t start, const Visit& visit) {
  for (std::int32_t walk = team.rank(); walk < plan.num_walks; walk += team.size()) {
    const int length = draw_length(plan, start, walk);
    Walker walker = {start, 1.0f};
    RandomBlock words{};
    for (int hop = 0; hop < length; ++hop) {
      const std::int64_t begin = graph.row_ptr[walker.node];
      const auto degree = static_cast<std::int32_t>(graph.row_ptr[walker.node + 1] - begin);
      if (degree == 0) break;
      if (hop % 4 == 0) {
        words = draw(plan, start, static_cast<std::uint32_t>(walk), static_cast<std::uint32_t>(hop / 4),
                     Purpose::step);
      }
      const std::uint32_t word = pick_word(words, hop % 4);
      const std::int32_t choice =
          plan.weighted_steps
              ? weighted_choice(graph, begin, degree, word)
              : static_cast<std::int32_t>(scale_word(word, static_cast<std::uint32_t>(degree)));
      take_step(plan, graph, begin, degree, choice, hop, walker);
      visit(walk, hop + 1, walker.node, walker.load);
    }
  }
}

// Up to 32 walkers, one per lane: those on one node find each other by a vote.
template <class Visit>
__device__ void repel_in_warp(const DeviceWalkPlan& plan, const DeviceGraph& graph, std::int32_t start,
                              const Visit& visit) {
  const int lane = WarpTeam().rank();
  const int length = lane < plan.num_walks ? draw_length(plan, start, lane) : 0;
  Walker walker = {start, 1.0f};
  for (int hop = 0; hop < plan.max_hops; ++hop) {
    const std::int64_t begin = graph.row_ptr[walker.node];
    const auto degree = static_cast<std::int32_t>(graph.row_ptr[walker.node + 1] - begin);
    const bool live = hop < length && degree > 0;  // who has stopped stays where it is, and so stays stopped
    const unsigned all_live = __ballot_sync(~0u, live);
    if (all_live == 0) break;
    if (live) {
      const unsigned group = __match_any_sync(all_live, walker.node);
      const std::int32_t choice =
          repelling_choice(plan, graph, start, walker.node, hop, __popc(group & ((1u << lane) - 1)),
                           __popc(group), begin, degree);
      take_step(plan, graph, begin, degree, choice, hop, walker);
      visit(lane, hop + 1, walker.node, walker.load);
    }
    __syncwarp();
  }
}

struct RepellingWalker {
  Walker at;
  std::int32_t length;
};

// Any number of walkers: sorted by (node, walker) before every hop. There is room for a walker each in
// `walkers`, and for the next power of two in `order`. (One array of walkers and not one of each member: nvcc
// 13.0 took the second of three such arrays in global memory for shared memory.)
struct RepellingScratch {
  std::uint64_t* order;
  RepellingWalker* walkers;
  int* live;
};

template <class Team, class Visit>
__device__ void repel_in_team(const Team& team, const DeviceWalkPlan& plan, const DeviceGraph& graph,
                              std::int32_t start, const RepellingScratch& scratch, const Visit& visit) {
  for (std::int32_t walk = team.rank(); walk < plan.num_walks; walk += team.size()) {
    scratch.walkers[walk] = {{start, 1.0f}, draw_length(plan, start, walk)};
  }
  for (int hop = 0; hop < plan.max_hops; ++hop) {
    if (team.rank() == 0) *scratch.live = 0;
    team.sync();
    for (std::int32_t walk = team.rank(); walk < plan.num_walks; walk += team.size()) {
      const std::int32_t node = scratch.walkers[walk].at.node;
      if (hop >= scratch.walkers[walk].length || graph.row_ptr[node] == graph.row_ptr[node + 1]) continue;
      scratch.order[atomicAdd(scratch.live, 1)] = static_cast<std::uint64_t>(static_cast<std::uint32_t>(node))
                                                      << 32 |
                                                  static_cast<std::uint32_t>(walk);
    }
    team.sync();
    const int live = *scratch.live;
    if (live == 0) break;
    team_sort(team, scratch.order, static_cast<float*>(nullptr), live);
    for (int i = team.rank(); i < live; i += team.size()) {
      const std::uint64_t key = scratch.order[i];
      const auto node = static_cast<std::int32_t>(key >> 32),
                 walk = static_cast<std::int32_t>(key & 0xFFFFFFFFu);
      const std::uint64_t group = key >> 32 << 32;
      const int first = lower_bound(scratch.order, live, group);
      const int last = lower_bound(scratch.order, live, group + (std::uint64_t{1} << 32));
      const std::int64_t begin = graph.row_ptr[node];
      const auto degree = static_cast<std::int32_t>(graph.row_ptr[node + 1] - begin);
      Walker walker = scratch.walkers[walk].at;
      const std::int32_t choice =
          repelling_choice(plan, graph, start, node, hop, i - first, last - first, begin, degree);
      take_step(plan, graph, begin, degree, choice, hop, walker);
      scratch.walkers[walk].at = walker;
      visit(walk, hop + 1, walker.node, walker.load);
    }
    team.sync();
  }
}

// Every walk of up to max_hops on a graph whose out-degrees are all `degree` (or 0). The t-th walk of all
// hops takes the neighbours that the digits of t in base `degree` name; the first of those that begin alike
// visits for all of them. Returns false if a degree is neither.
template <class Team, class Visit>
__device__ bool enumerate_walks(const Team& team, const DeviceWalkPlan& plan, const DeviceGraph& graph,
                                std::int32_t start, std::int32_t out_degree, const Visit& visit) {
  bool regular = true;
  std::int32_t walks = 1;
  for (int hop = 0; hop < plan.max_hops; ++hop) walks *= out_degree;
  for (std::int32_t t = team.rank(); t < walks; t += team.size()) {
    Walker walker = {start, 1.0f};
    std::int32_t rest = t, alike = walks;
    for (int hop = 0; hop < plan.max_hops; ++hop) {
      const std::int64_t begin = graph.row_ptr[walker.node];
      const auto degree = static_cast<std::int32_t>(graph.row_ptr[walker.node + 1] - begin);
      if (degree != out_degree) {
        regular = regular && degree == 0;
        break;
      }
      alike /= out_degree;
      const std::int64_t entry = begin + rest / alike;
      rest %= alike;
      walker.node = graph.col[entry];
      walker.load *= plan.importance_weights ? graph.weight[entry] : 1.0f / static_cast<float>(degree);
      if (rest == 0) visit(t / alike, hop + 1, walker.node, walker.load);
    }
  }
  return regular;
}

}  // namespace topomask
