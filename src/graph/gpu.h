// Graphs on a GPU. Each function is the CUDA version of its namesake in graph.h or graph_builders.h.
#pragma once

#include "graph/neighbour_task.h"
#include "topomask/graph.h"

namespace topomask {

// The entries of a pattern, column by column and by row within a column. A pattern may be padded: entries
// beyond row_ptr[N], which are in no row, come after all columns.
struct TransposedEntries {
  at::Tensor ptr;    // [columns+1] int64
  at::Tensor row;    // [E] int32
  at::Tensor entry;  // [E] int32, or int64 where `wide`: the position in the pattern
};
TransposedEntries transpose_entries_cuda(const at::Tensor& row_ptr, const at::Tensor& col,
                                         std::int64_t num_columns, bool wide = false);
// [entries] int32: the row of each entry, 0 for those beyond row_ptr[N]. row_ptr: [N+1], contiguous.
at::Tensor entry_rows_cuda(const at::Tensor& row_ptr, std::int64_t entries);

Graph transposed_cuda(const Graph& graph);
// `order`: a permutation, on the graph's device.
Graph permuted_cuda(const Graph& graph, const at::Tensor& order);
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
