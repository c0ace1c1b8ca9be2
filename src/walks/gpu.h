// Walks and features of graphs on a GPU. See walks.h and features.h for what they are.
#pragma once

#include "topomask/features.h"
#include "walks/cpu/walk_plan.h"

namespace topomask {

// [N, walks, max_hops + 1] int32, as sample_walks.
at::Tensor sample_walks_cuda(const Graph& graph, const WalkPlan& plan, int max_hops);
// As sample_walk_features.
WalkFeatures sample_walk_features_cuda(const Graph& graph, const WalkPlan& plan, int max_hops);

// f: [heads, terms] -> values [heads, nnz]; the arrays are those of WalkFeatures.
at::Tensor modulate_cuda(const at::Tensor& f, const at::Tensor& deposit_ptr, const at::Tensor& hop,
                         const at::Tensor& load);
// dL/df [heads, terms] from dL/dvalues [heads, nnz].
at::Tensor modulate_backward_cuda(const at::Tensor& grad_values, std::int64_t terms,
                                  const at::Tensor& deposit_ptr, const at::Tensor& hop,
                                  const at::Tensor& load);

}  // namespace topomask
