// Where a query stands in the order of the points.
#pragma once

#include "graph/cuda/neighbour_order.h"

namespace topomask::cuda {

// The first position of a point that does not come before query i.
__device__ inline std::int64_t position_of(const OrderedQueries& order, std::int64_t i, std::int64_t count) {
  if (order.queries.key == order.points.key) return i;
  const std::uint64_t wanted = order.queries.key[i];
  std::int64_t low = 0, high = count - 1;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (order.points.key[middle] >> order.query_shift < wanted) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// The positions of the points of its graph.
__device__ inline int2 graph_positions(const OrderedQueries& order, std::int64_t i,
                                       const NeighbourArguments& a) {
  if (a.ptr == nullptr) return {0, static_cast<int>(a.count)};
  const bool same = order.queries.key == order.points.key;
  const std::uint64_t key = order.queries.key[i];
  auto graph =
      static_cast<std::int64_t>(key >> (same ? order.place_bits : order.place_bits - order.query_shift));
  graph = min(graph, a.graphs - 1);
  // Offsets that lie on the device were not checked.
  const std::int64_t begin = max(min(a.ptr[graph], a.count), std::int64_t{0}),
                     end = max(min(a.ptr[graph + 1], a.count), std::int64_t{0});
  return {static_cast<int>(begin), static_cast<int>(end)};
}

}  // namespace topomask::cuda
