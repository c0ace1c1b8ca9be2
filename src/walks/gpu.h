// Walks and features of graphs on a GPU. See walks.h and features.h for what they are.
#pragma once

#include "topomask/features.h"
#include "walks/cpu/walk_plan.h"

namespace topomask {

// [N, walks, max_hops + 1] int32, as sample_walks.
at::Tensor sample_walks_cuda(const Graph& graph, const WalkPlan& plan, int max_hops);
// As sample_walk_features. Exact sizes cost one wait for the device. `padded`, or while a CUDA graph is
// captured, it does not wait: col, deposit_ptr, hop and load have room for the most that walks can leave,
// which is for every node one deposit for the start and for each hop h the lesser of the number of walks and
// out_degree^h (of the walks alone where the graph does not know its out-degree). Rows follow each other
// without gaps, as always, and equal those of the CPU.
WalkFeatures sample_walk_features_cuda(const Graph& graph, const WalkPlan& plan, int max_hops, bool padded);

// As one_hot_features.
WalkFeatures one_hot_features_cuda(std::int64_t num_nodes, c10::Device device);

// f: [heads, terms] -> values [heads, nnz]; the arrays are those of WalkFeatures.
at::Tensor modulate_cuda(const at::Tensor& f, const at::Tensor& deposit_ptr, const at::Tensor& hop,
                         const at::Tensor& load);
// dL/df [heads, terms] from dL/dvalues [heads, nnz].
at::Tensor modulate_backward_cuda(const at::Tensor& grad_values, std::int64_t terms,
                                  const at::Tensor& deposit_ptr, const at::Tensor& hop,
                                  const at::Tensor& load);

}  // namespace topomask
