// Graphs on a GPU; only built with CUDA. Each function is what its namesake in graph.h or graph_builders.h
// does with CUDA tensors.
#pragma once

#include "graph/neighbour_task.h"
#include "topomask/graph.h"

namespace topomask {

// The entries of a pattern, column by column and by row within a column.
struct TransposedEntries {
  at::Tensor ptr;    // [columns+1] int64
  at::Tensor row;    // [E] int32
  at::Tensor entry;  // [E] int32: the position in the pattern
};
TransposedEntries transpose_entries_cuda(const at::Tensor& row_ptr, const at::Tensor& col,
                                         std::int64_t num_columns);

Graph transposed_cuda(const Graph& graph);
Graph permuted_cuda(const Graph& graph,
                    const at::Tensor& order);  // `order` on the graph's device, a permutation
Graph normalise_cuda(const Graph& graph, Normalisation how);
at::Tensor to_dense_cuda(const Graph& graph);

at::Tensor morton_order_cuda(const at::Tensor& points);  // [N, 1 to 3] float32

// Neighbours: up to kMaxGpuDimension dimensions and kMaxGpuNeighbours neighbours.
bool neighbours_run_on_cuda(const NeighbourTask& task);
Neighbours nearest_cuda(const NeighbourTask& task);
NeighbourRows within_cuda(const NeighbourTask& task);
NeighbourRows rows_of_cuda(const Neighbours& neighbours);
Graph knn_graph_cuda(const NeighbourTask& task, bool symmetric);

}  // namespace topomask
