// Products with exp(a dist(i, j)) on a forest, differentiable, on the CPU or a GPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "topomask/graph.h"

namespace topomask {

struct RootedForest;
struct ForestOnDevice;

// An undirected graph without cycles, rooted for products on one device.
struct Forest {
  std::shared_ptr<const RootedForest> rooted;
  std::shared_ptr<const ForestOnDevice> on_device;  // null on the CPU
};
// Throws topomask::Error where the graph has a cycle or a self-loop.
Forest make_forest(const Graph& graph, bool weighted, c10::Device device);

// y_h = E_h x_h with E_ij = exp(a_h dist(i, j)) within a tree, 0 elsewhere. x: [H, N, C], a: [H] of x's
// dtype.
at::Tensor multiply_by_forest(const Forest& forest, const at::Tensor& x, const at::Tensor& a);

}  // namespace topomask
