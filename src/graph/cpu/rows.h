// From an edge list to compressed sparse rows, under a stated policy.
#pragma once

#include <cstdint>
#include <vector>

#include "topomask/csr.h"
#include "topomask/edge_list.h"

namespace topomask {

struct BuiltRows {
  CsrArrays rows;
  bool directed = false;
  bool all_kept = true;            // no node was dropped; `kept` is empty then
  std::vector<std::int32_t> kept;  // new node -> node of the edge list, ascending
};

// O(N + E). An edge with weight 0 is an edge. An undirected edge goes into both rows, a self-loop once.
// A list that is read as `directed` against its nature gives each listed edge the direction it was listed in.
// Components are dropped before isolated nodes, so a graph without edges can become empty.
BuiltRows build_rows(const EdgeList& edges, const GraphPolicy& policy);

// Merges parallel entries in place; the columns of a row ascend. Sums are taken in double in the order of the
// entries, which is the same for (a, b) and (b, a): an undirected graph stays symmetric to the last bit.
// `first_row` is the node of the first row, for error messages.
void merge_parallel_entries(CsrArrays& rows, Duplicates duplicates, std::int64_t first_row = 0);

// The inverse: every entry of a directed graph, each undirected edge once.
EdgeList edges_of(const CsrView& graph, bool directed);

}  // namespace topomask
