// Walk options compiled for the kernels: thresholds on 32-bit random words instead of probabilities, and a
// neighbour lookup made for the graph at hand.
#pragma once

#include <cstdint>
#include <vector>

#include "topomask/csr.h"

namespace topomask {

// Counter word 3 tells what a random block is for, so that no two purposes ever share one.
enum class Purpose : std::uint32_t { halt = 0, step = 1, repel = 2 };

struct WalkPlan {
  std::int64_t num_walks = 0;
  int max_hops = 0;         // no walk can be longer (already lowered where the survival function reaches 0)
  bool always_max = false;  // the length law never halts before max_hops
  bool antithetic = false;
  bool repelling = false;
  bool weighted_steps = false;
  bool importance_weights = true;
  bool need_loads = true;  // false: only the visited nodes are wanted
  std::uint32_t key0 = 0, key1 = 0, ensemble = 0;
  std::vector<std::uint32_t> halt_below;  // [max_hops]: halt before hop k+1 if the word is below this
  std::vector<float> inverse_continue;    // [max_hops]: S(k) / S(k+1), or 1 without importance weights

  std::uint32_t purpose_word(Purpose purpose) const {
    return ensemble * 4 + static_cast<std::uint32_t>(purpose);
  }
};

// The most (node, hop) pairs that the walks of one start can visit, the start included. out_degree: of every
// node, or -1 where it is not known.
std::int64_t most_deposits(const WalkPlan& plan, std::int64_t out_degree, std::int64_t num_nodes);

// Where a walker on node u goes for a random word x, and by what it multiplies its load on the way.
//
// slots > 0: every degree divides `slots`, so one table lookup [u, floor(x * slots / 2^32)] replaces the
// three of a CSR row. Since slots/degree is whole, floor(floor(x*slots/2^32) / (slots/degree)) =
// floor(x*degree/2^32): the table takes the same neighbour as the row does.
struct NeighbourTable {
  CsrView graph;
  bool has_sinks = false;                 // some node has no neighbour to go to: a walk ends there
  int slots = 0;                          // 0: use the rows
  std::vector<std::int32_t> slot_node;    // [N, slots]
  std::vector<float> slot_factor;         // [N, slots]
  std::vector<std::int32_t> row_start;    // [N] (rows; only when the number of entries fits int32)
  std::vector<std::int32_t> row_degree;   // [N]
  std::vector<float> edge_factor;         // [E] w_uv / p_step(u -> v), or 1 without importance weights
  std::vector<std::uint32_t> edge_below;  // [E] weighted steps: the edge is taken if x is below this and not
                                          // below the previous one; the last edge of a row takes the rest

  // Index of the neighbour within u's row, weighted steps.
  std::int64_t weighted_choice(std::int64_t node, std::uint32_t word) const;
};

NeighbourTable make_neighbour_table(const CsrView& graph, const WalkPlan& plan);

// floor(word * range / 2^32): uniform in [0, range), the multiply-high every sampler here uses.
constexpr std::uint32_t scale_word(std::uint32_t word, std::uint32_t range) {
  return static_cast<std::uint32_t>((std::uint64_t{word} * range) >> 32);
}

}  // namespace topomask
