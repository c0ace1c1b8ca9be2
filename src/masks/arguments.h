// Checks and small products that the masks share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "topomask/graph.h"
#include "topomask/mask.h"

namespace topomask {

// x as apply() and apply_transposed() take it: [H, N, C], float32 or float64, on the mask's device.
void check_input(const Mask& mask, const at::Tensor& x);

// The parameters of a mask are on one device.
void check_same_device(const char* mask, const char* argument, const at::Tensor& tensor, const char* other,
                       const at::Tensor& reference);

// A parameter of the given shape, float32 or float64; -1 stands for a size that is free (at least 1 head).
// `shape` is how the message writes it: "[H, N, R]".
void check_parameter(const char* mask, const char* argument, const at::Tensor& tensor, at::IntArrayRef sizes,
                     const char* shape);

// The graph itself, or a copy on the CPU, where masks are set up.
Graph graph_on_cpu(const Graph& graph);

std::int64_t checked_num_nodes(const char* mask, std::int64_t num_nodes);

// left (right^T x) in the dtype of x.
at::Tensor apply_factors(const at::Tensor& left, const at::Tensor& right, const at::Tensor& x);

}  // namespace topomask
