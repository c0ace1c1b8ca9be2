// The peer of `topomask bench walks`: the usual way to walk on a CPU, one scalar loop per walker.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "topomask/graph.h"

namespace topomask::cli {

// A per-walker loop over int64 rows that reads uniforms drawn beforehand and writes int64 nodes, as
// torch_cluster's random_walk does on the CPU. Drawing the uniforms is not part of a run, which favours the
// loop.
class WalkerLoop {
 public:
  // `p_halt`: also draw one number a hop that decides whether the walk ends there.
  WalkerLoop(const Graph& graph, std::int64_t num_walks, int hops, std::optional<double> p_halt,
             std::uint64_t seed);

  at::Tensor run() const;  // [N * n, hops + 1] int64, -1 after the end of a walk

 private:
  std::int64_t num_walkers_;
  int hops_;
  std::vector<std::int64_t> row_ptr_, col_, start_;
  std::vector<float> step_uniform_;  // [N * n, hops]
  std::vector<float> halt_uniform_;  // [N * n, hops], or empty: walks of full length
  float p_halt_ = 0;
};

}  // namespace topomask::cli
