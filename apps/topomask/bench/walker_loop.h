// The peer of `topomask bench walks`: the usual way to walk on a CPU, one scalar loop per walker.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "topomask/graph.h"

namespace topomask::cli {

// A per-walker loop over int64 rows that draws all its uniforms with torch first and writes int64 nodes, as
// torch_cluster's random_walk does on the CPU. The two halves can be timed apart.
class WalkerLoop {
 public:
  struct Uniforms {
    at::Tensor step;  // [N * n, hops] float32
    at::Tensor halt;  // the same, or undefined: walks of full length
  };

  // `p_halt`: also draw one number a hop that decides whether the walk ends there.
  WalkerLoop(const Graph& graph, std::int64_t num_walks, int hops, std::optional<double> p_halt,
             std::uint64_t seed);

  Uniforms draw() const;
  at::Tensor walk(const Uniforms& uniforms) const;  // [N * n, hops + 1] int64, -1 after the end of a walk

 private:
  std::int64_t num_walkers_;
  int hops_;
  std::vector<std::int64_t> row_ptr_, col_, start_;
  std::optional<double> p_halt_;
  at::Generator generator_;
};

}  // namespace topomask::cli
