// Rows to rows: transposes, subgraphs, permutations, unions and scalings. All O(N + E).
#pragma once

#include <cstdint>
#include <vector>

#include "topomask/csr.h"

namespace topomask {

// Also sorts: the columns of the result ascend whatever the order in `graph`, and parallel entries keep
// theirs.
CsrArrays transpose(const CsrView& graph);

bool equal_rows(const CsrView& a, const CsrView& b);

// The graph on `kept` (ascending), renumbered 0, 1, ...
CsrArrays subgraph(const CsrView& graph, const std::vector<std::int32_t>& kept);

// The subgraph of the first `most` nodes that a breadth-first search from the middle node finds. Where a
// component ends, the search goes on in the next.
CsrArrays ball(const CsrView& graph, std::int64_t most);

// Node i of the result is node order[i] of `graph`; `order` is a permutation.
CsrArrays permute(const CsrView& graph, const std::vector<std::int32_t>& order);

// i ~ j when the graph has an entry (i, j) or (j, i); all weights 1.
CsrArrays symmetric_pattern(const CsrView& graph);

std::vector<double> absolute_row_sums(const CsrView& graph);
std::vector<double> absolute_column_sums(const CsrView& graph);

// weight(i, j) * left[i] * right[j], the two factors multiplied first: symmetric input stays symmetric.
std::vector<float> scale_entries(const CsrView& graph, const std::vector<double>& left,
                                 const std::vector<double>& right);

}  // namespace topomask
