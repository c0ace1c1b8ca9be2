// The rows of generated graphs, written without going through an edge list. All weights are 1.
//
// Each function checks its arguments and the size of its result before it allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "topomask/csr.h"

namespace topomask {

CsrArrays grid_rows(std::span<const std::int64_t> extent, bool diagonals, bool wrap);
CsrArrays hypercube_rows(int dimension);
CsrArrays tree_rows(int depth, int branching);
CsrArrays erdos_renyi_rows(std::int64_t num_nodes, double probability, std::uint64_t seed);
CsrArrays barabasi_albert_rows(std::int64_t num_nodes, std::int64_t edges_per_node, std::uint64_t seed);
CsrArrays random_regular_rows(std::int64_t num_nodes, std::int64_t degree, std::uint64_t seed);
CsrArrays karate_rows();

// The undirected graph whose row i lists, in ascending order, its neighbours below i.
CsrArrays mirror_lower_rows(std::span<const std::int64_t> lower_ptr, std::span<const std::int32_t> lower_col);

}  // namespace topomask
