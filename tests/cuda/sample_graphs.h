// Graphs that between them have every oddity: hubs, sinks, isolated nodes, signed weights, directions, no
// nodes at all.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "core/random.h"
#include "gpu.h"
#include "topomask/graph_builders.h"
#include "topomask/walks.h"

namespace topomask::testing {

inline Graph random_directed(std::int64_t nodes, std::uint64_t seed) {
  RandomStream random(seed, 1);
  CsrArrays rows;
  for (std::int64_t i = 0; i < nodes; ++i) {
    // Every fifth node is a sink.
    for (std::int64_t j = 0; j < nodes && i % 5 != 0; ++j) {
      if (random.next_double() * static_cast<double>(nodes) > 6) continue;
      rows.col.push_back(static_cast<std::int32_t>(j));
      rows.weight.push_back(static_cast<float>(2 * random.next_double() - 1));
    }
    rows.row_ptr.push_back(static_cast<std::int64_t>(rows.col.size()));
  }
  return Graph::from_csr(std::move(rows), true);
}

struct NamedGraph {
  std::string name;
  Graph graph;
};
inline void PrintTo(const NamedGraph& named, std::ostream* to) {
  *to << named.name;
}

inline std::vector<NamedGraph> sample_graphs() {
  return {
      {"no nodes", Graph()},
      {"one node", path_graph(1)},
      {"karate", normalise(karate_club(), Normalisation::symmetric)},
      {"grid", normalise(grid_graph({17, 23}), Normalisation::symmetric)},
      {"torus", normalise(grid_graph({16, 16}, {.wrap = true}), Normalisation::random_walk)},
      {"sparse random", normalise(erdos_renyi(700, 0.002, 3), Normalisation::symmetric)},  // isolated nodes
      {"hubs", normalise(barabasi_albert(1500, 3, 5), Normalisation::symmetric)},
      {"star", normalise(barabasi_albert(700, 1, 9), Normalisation::max_degree)},
      {"signed and directed", random_directed(400, 11)}};
}

// A separate test case for each, so that several processes can share the work.
using OnEveryGraph = OnGpu<NamedGraph>;
inline std::string name_of_graph(const ::testing::TestParamInfo<NamedGraph>& info) {
  return case_name(info.param.name);
}

inline WalkOptions geometric_walks(std::int64_t num_walks, int max_hops = 10, double p_halt = 0.5) {
  WalkOptions options;
  options.num_walks = num_walks;
  options.max_hops = max_hops;
  options.p_halt = p_halt;
  return options;
}

// As many repelling walkers as there are walks of that many hops on a graph of this out-degree.
inline WalkOptions exhaustive_walks(std::int64_t degree, int hops) {
  WalkOptions options;
  options.num_walks = 1;
  for (int hop = 0; hop < hops; ++hop) options.num_walks *= degree;
  options.max_hops = hops;
  options.length = LengthLaw::fixed;
  options.coupling = Coupling::repelling;
  return options;
}

// Points on a bumpy sphere, in random order.
inline std::vector<float> bumpy_sphere(std::int64_t count, std::uint64_t seed) {
  RandomStream random(seed, 2);
  std::vector<float> points;
  for (std::int64_t i = 0; i < count; ++i) {
    const double z = 2 * random.next_double() - 1, angle = 6.283185307179586 * random.next_double();
    const double ring = std::sqrt(1 - z * z), radius = 1 + 0.2 * std::sin(5 * angle) * ring;
    points.push_back(static_cast<float>(radius * ring * std::cos(angle)));
    points.push_back(static_cast<float>(radius * ring * std::sin(angle)));
    points.push_back(static_cast<float>(radius * z));
  }
  return points;
}

}  // namespace topomask::testing
