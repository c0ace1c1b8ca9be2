// A part of a model that keeps only its inputs for the backward pass, and runs again there.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace topomask {

using TensorsToTensors = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// run(inputs), with the same results and gradients, and without what the graph of `run` would keep.
// `parameters`: what else `run` depends on and gradients are wanted of. `run` must be a function of both; it
// is kept until the backward pass, which runs it under the autocast of this call. Gradients once only.
std::vector<at::Tensor> recomputed(const TensorsToTensors& run, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters);

}  // namespace topomask
