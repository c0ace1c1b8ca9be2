// Points and queries in the order in which they are searched: graph by graph, and along a Z-order curve
// within a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "graph/cuda/knn.h"

namespace topomask::cuda {

// Hands out one array behind another; without memory it only counts.
class Arena {
 public:
  explicit Arena(void* memory) : memory_(static_cast<char*>(memory)) {}
  template <class T>
  T* take(std::int64_t count) {
    char* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 255) / 256 * 256;
    return reinterpret_cast<T*>(at);
  }
  std::size_t used() const { return used_; }

 private:
  char* memory_;
  std::size_t used_ = 0;
};

// Keys in ascending order, and the rows they belong to.
struct SortedKeys {
  const std::uint64_t* key = nullptr;
  const std::int32_t* index = nullptr;
};

// What a kernel needs to know of the order; neighbour_order.cuh reads it.
struct OrderedQueries {
  SortedKeys points, queries;  // the same where the points are the queries
  int place_bits = 0;          // of a point's key, below those of its graph
  int query_shift = 0;         // low bits that the keys of queries lack
};

// How a key is put together: the graph, then interleaved bits of the coordinates.
struct KeyLayout {
  static constexpr int kMaxAxes = 6;  // further ones do not matter to the order
  int axes = 3, axis_bits = 21, graph_bits = 0, query_shift = 0;

  KeyLayout() = default;
  explicit KeyLayout(const NeighbourArguments& a);
};

class NeighbourOrder {
 public:
  NeighbourOrder() = default;
  NeighbourOrder(const NeighbourArguments& a, Arena& arena);

  cudaError_t sort(const NeighbourArguments& a, cudaStream_t stream) const;
  SortedKeys points() const { return {point_.sorted_key, point_.sorted_index}; }
  OrderedQueries ordered() const;

 private:
  struct Rows {
    std::uint64_t *key = nullptr, *sorted_key = nullptr;
    std::int32_t *index = nullptr, *sorted_index = nullptr;
  };
  template <class T>
  cudaError_t sort_rows(const NeighbourArguments& a, bool queries, cudaStream_t stream) const;

  KeyLayout layout_;
  double* partial_ = nullptr;  // [2, axes, kBoxBlocks]
  Rows point_, query_;
  void* sort_ = nullptr;
  std::size_t sort_bytes_ = 0;
};

}  // namespace topomask::cuda
