// Random walks from every node (Alg. 1, line 1).
//
// A step of a walk is a function of (seed, ensemble, start node, walk, hop) only: the same on any number of
// threads, with any instruction set and on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topomask/graph.h"
#include "topomask/words.h"

namespace topomask {

enum class LengthLaw {
  geometric,  // halt with probability p_halt at every node: S(k) = (1 - p_halt)^k
  fixed,      // always max_hops: S(k) = 1
  survival,   // any law, by S(k) = Pr(length >= k)
};
enum class StepLaw {
  uniform,   // every neighbour with probability 1 / degree
  weighted,  // |w_uv| / sum |w_u.|
};
// Couplings reduce variance and leave each walker's own law unchanged, so the estimate stays unbiased.
enum class Coupling {
  independent,
  antithetic,  // termination: walkers i and i + n/2 share t, the second uses (t + 1/2) mod 1; n must be even
  repelling,   // steps: the live walkers on one node spread over its neighbours
  both,
};

struct WalkOptions {
  std::int64_t num_walks = 16;  // n, per node
  int max_hops = 10;            // i_max, at most 32767
  LengthLaw length = LengthLaw::geometric;
  double p_halt = 0.5;
  std::vector<double> survival;  // length = survival: S(0) = 1, S(1), ..., S(max_hops), non-increasing
  StepLaw step = StepLaw::uniform;
  Coupling coupling = Coupling::independent;
  std::uint64_t seed = 0;
  std::uint32_t ensemble = 0;  // ensembles of one seed are independent of each other
};

// Throws if the options make no sense together; every function that takes WalkOptions calls it first.
void check_walk_options(const WalkOptions& options);

// Sets `length` and `survival` from "geometric", "fixed" or "survival:S0,S1,..."; errors begin with `what`.
void parse_length(WalkOptions& options, std::string_view text, std::string_view what);

// S(0..max_hops) of the options' length law.
std::vector<double> survival_function(const WalkOptions& options);

// The walks themselves, for inspection and for users of plain random walks: [N, n, max_hops + 1] int32, the
// nodes visited, the start included; -1 after the walk has ended; on the device of the graph. (The features
// never form this array.)
at::Tensor sample_walks(const Graph& graph, const WalkOptions& options);

template <>
std::span<const Word<LengthLaw>> words<LengthLaw>();
template <>
std::span<const Word<StepLaw>> words<StepLaw>();
template <>
std::span<const Word<Coupling>> words<Coupling>();

}  // namespace topomask
