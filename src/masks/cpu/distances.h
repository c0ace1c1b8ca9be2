// Breadth-first distances in hops, and tables over them.
#pragma once

#include <cstdint>

#include "topomask/csr.h"

namespace topomask {

// distance[i * N + j]: hops from i to j along the edges; max_distance + 1 where j is farther or out of reach.
// max_distance <= 254.
void all_pairs_distances(const CsrView& graph, int max_distance, std::uint8_t* distance);

// Nodes within `hops` steps of each node, ascending; the node itself only where `include_self` holds.
CsrArrays neighbourhoods(const CsrView& graph, int hops, bool include_self);

// out[h, e] = table[h, key[e]] for `count` keys below `size`, and the gradient of the table.
template <class Real>
void look_up(const std::uint8_t* key, std::int64_t count, const Real* table, std::int64_t heads,
             std::int64_t size, Real* out);
template <class Real>
void look_up_backward(const std::uint8_t* key, std::int64_t count, const Real* grad_out, std::int64_t heads,
                      std::int64_t size, Real* grad_table);

extern template void look_up<float>(const std::uint8_t*, std::int64_t, const float*, std::int64_t,
                                    std::int64_t, float*);
extern template void look_up<double>(const std::uint8_t*, std::int64_t, const double*, std::int64_t,
                                     std::int64_t, double*);
extern template void look_up_backward<float>(const std::uint8_t*, std::int64_t, const float*, std::int64_t,
                                             std::int64_t, float*);
extern template void look_up_backward<double>(const std::uint8_t*, std::int64_t, const double*, std::int64_t,
                                              std::int64_t, double*);

}  // namespace topomask
