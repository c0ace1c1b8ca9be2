// What adjacency matrices from files (Matrix Market, SciPy) have in common once their entries are known.
#pragma once

#include <cstdint>

#include "topomask/edge_list.h"

namespace topomask {

constexpr std::int64_t kMaxNodes = 2147483647;  // node ids are int32

// Whether a declared number of nodes is plausible next to the number of edges found: a graph costs memory per
// node even where it has no edges, so a forged header must not be able to ask for gigabytes.
bool plausible_node_count(std::int64_t num_nodes, std::int64_t num_edges);

// If the list, read as the entries of a matrix, equals its transpose (values included), makes it undirected:
// keeps the entries with source <= target, in their order. Otherwise makes it directed.
void undirect_if_symmetric(EdgeList& edges);

}  // namespace topomask
