// Walks and features of graphs on a GPU; only built with CUDA. See features.h for what they are.
#pragma once

#include "topomask/features.h"
#include "walks/cpu/walk_plan.h"

namespace topomask {

at::Tensor sample_walks_cuda(const Graph& graph, const WalkPlan& plan, int max_hops);
WalkFeatures sample_walk_features_cuda(const Graph& graph, const WalkPlan& plan, int max_hops);

at::Tensor modulate_cuda(const at::Tensor& f, const at::Tensor& deposit_ptr, const at::Tensor& hop,
                         const at::Tensor& load);
at::Tensor modulate_backward_cuda(const at::Tensor& grad_values, std::int64_t terms,
                                  const at::Tensor& deposit_ptr, const at::Tensor& hop,
                                  const at::Tensor& load);

}  // namespace topomask
