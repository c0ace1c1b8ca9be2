// Which part of a partition each node belongs to, by three methods. The work of a node is the number of
// entries of its row plus one.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "topomask/csr.h"

namespace topomask {

// Parts are contiguous runs of `order` (a permutation of the nodes) with equal work.
std::vector<std::int32_t> partition_by_order(const CsrView& graph, const std::vector<std::int32_t>& order,
                                             std::int64_t parts);

// METIS's multilevel k-way partitioning (Karypis & Kumar 1998). `graph` has a symmetric pattern; loops and
// parallel entries are left out. `work` has a number per node. Seeds the C library's rand().
std::vector<std::int32_t> partition_by_metis(const CsrView& graph, const std::vector<std::int64_t>& work,
                                             std::int64_t parts, double imbalance, std::uint64_t seed);

// Fennel (Tsourakakis et al. 2014), restreamed (Nishimura & Ugander 2013): parts begin as contiguous runs of
// nodes with equal work; then each node in turn goes to the part that has most of its neighbours, less a
// price that grows with the root of the part's work. Memory: two numbers per node.
class FennelPartition {
 public:
  // `work`: [N]; `num_neighbours`: of all nodes together, as place() is given them.
  FennelPartition(std::vector<std::int64_t> work, std::int64_t num_neighbours, std::int64_t parts,
                  double imbalance);

  static constexpr int kPasses = 5;  // over all nodes; later ones gain little

  // `neighbours` without parallel ones and without the node itself.
  void place(std::int32_t node, std::span<const std::int32_t> neighbours);

  std::vector<std::int32_t> take() { return std::move(part_); }  // [N]

 private:
  std::vector<std::int64_t> work_;       // [N]
  std::vector<std::int32_t> part_;       // [N]
  std::vector<std::int64_t> load_;       // [parts] work
  std::vector<std::int64_t> near_;       // [parts] neighbours of the node at hand
  std::vector<std::int32_t> candidate_;  // parts that have some
  double price_ = 0, capacity_ = 0;
};

}  // namespace topomask
