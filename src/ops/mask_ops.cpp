// Products and ingredients of the masks that have kernels of their own.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <cmath>

#include "masks/forest_ops.h"
#include "ops/arguments.h"
#include "ops/library_call.h"
#include "ops/tensor_cache.h"
#include "topomask/masks.h"

namespace topomask::ops {
namespace {

// ---- exp(a dist(i, j)) on a forest ----

// Trees are rooted on the CPU, which costs less there than one column of the product. A GPU would have to be
// waited for at every call, so what it needs is kept with the tensors of the graph.
std::shared_ptr<const Forest> forest_of(const at::Tensor& row_ptr, const at::Tensor& col,
                                        const at::Tensor& weight, bool weighted, c10::Device device) {
  const auto make = [&] {
    const Graph graph = graph_from(row_ptr.cpu(), col.cpu(), weight.cpu(), false);
    return std::make_shared<const Forest>(make_forest(graph, weighted, device));
  };
  if (device.is_cpu() || row_ptr.device() != device) return make();
  using Cache = TensorCache<const Forest>;
  static Cache &by_hops = *new Cache, &by_weight = *new Cache;  // never destroyed: CUDA may end before them
  return (weighted ? by_weight : by_hops).get({row_ptr, col, weight}, make);
}

TensorFunction run_forest(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight,
                          bool weighted) {
  return [=](const Tensors& in) {
    const at::Tensor &x = in[0], &a = in[1];
    check_real("forest_product", "x", x, {-1, row_ptr.size(0) - 1, -1});
    check_real("forest_product", "a", a, {-1});
    check(a.size(0) == 1 || a.size(0) == x.size(0), "forest_product: a has {} heads, x has {}", a.size(0),
          x.size(0));
    check_same_place("forest_product", "a", a, "x", x);
    const auto forest = forest_of(row_ptr, col, weight, weighted, x.device());
    return multiply_by_forest(*forest, x, a.to(x.scalar_type()).expand({x.size(0)}));
  };
}

at::Tensor forest_product_op(const at::Tensor& x, const at::Tensor& a, const at::Tensor& row_ptr,
                             const at::Tensor& col, const at::Tensor& weight, bool weighted) {
  return without_graph(run_forest(row_ptr, col, weight, weighted), {x, a});
}

std::tuple<at::Tensor, at::Tensor> forest_product_backward_op(const at::Tensor& grad, const at::Tensor& x,
                                                              const at::Tensor& a, const at::Tensor& row_ptr,
                                                              const at::Tensor& col, const at::Tensor& weight,
                                                              bool weighted, std::array<bool, 2> needs) {
  return gradients_of<2>(run_forest(row_ptr, col, weight, weighted), {x, a}, grad, needs);
}

at::Tensor forest_product_autograd(const at::Tensor& x, const at::Tensor& a, const at::Tensor& row_ptr,
                                   const at::Tensor& col, const at::Tensor& weight, bool weighted) {
  static const auto forward = find_operator<decltype(forest_product_op)>("topomask::forest_product");
  static const auto backward =
      find_operator<decltype(forest_product_backward_op)>("topomask::forest_product_backward");
  return differentiable({x, a}, library_call<2>(run_forest(row_ptr, col, weight, weighted), forward, backward,
                                                row_ptr, col, weight, weighted));
}

// ---- exp(-t (D - A)) on a hypercube ----

TensorFunction run_hypercube(std::int64_t dimension) {
  constexpr std::int64_t kMaxDimension = 30;
  check(dimension >= 0 && dimension <= kMaxDimension,
        "HypercubeHeatMask: dimension must be from 0 to {}, got {}", kMaxDimension, dimension);
  return [=](const Tensors& in) {
    check_place("hypercube_heat", "x", in[0]);
    return HypercubeHeatMask(static_cast<int>(dimension), in[1]).apply(in[0]);
  };
}

at::Tensor hypercube_heat_op(const at::Tensor& x, const at::Tensor& t, std::int64_t dimension) {
  return without_graph(run_hypercube(dimension), {x, t});
}

std::tuple<at::Tensor, at::Tensor> hypercube_heat_backward_op(const at::Tensor& grad, const at::Tensor& x,
                                                              const at::Tensor& t, std::int64_t dimension,
                                                              std::array<bool, 2> needs) {
  return gradients_of<2>(run_hypercube(dimension), {x, t}, grad, needs);
}

at::Tensor hypercube_heat_autograd(const at::Tensor& x, const at::Tensor& t, std::int64_t dimension) {
  static const auto forward = find_operator<decltype(hypercube_heat_op)>("topomask::hypercube_heat");
  static const auto backward =
      find_operator<decltype(hypercube_heat_backward_op)>("topomask::hypercube_heat_backward");
  return differentiable({x, t}, library_call<2>(run_hypercube(dimension), forward, backward, dimension));
}

// ---- ingredients ----

// Throws where the graph is not the hypercube whose nodes are numbered by their coordinates' bits.
at::Tensor check_hypercube(const at::Tensor& row_ptr, const at::Tensor& col) {
  const Graph graph = graph_from(row_ptr, col, at::ones({col.size(0)}, at::kFloat), false);
  const auto mask = HypercubeHeatMask::for_graph(graph, at::ones({1}));
  return at::full({}, static_cast<std::int64_t>(std::log2(static_cast<double>(mask->num_nodes()))),
                  at::kLong);
}

// [N, N] uint8: hops from i to j, max_distance + 1 where j is farther or out of reach.
at::Tensor hop_distances(const at::Tensor& row_ptr, const at::Tensor& col, std::int64_t max_distance,
                         std::int64_t max_bytes) {
  constexpr std::int64_t kMaxDistance = 254;
  check(max_distance >= 0 && max_distance <= kMaxDistance,
        "ShortestPathMask: max_distance must be from 0 to {}, got {}", kMaxDistance, max_distance);
  const Graph graph = graph_from(row_ptr, col, at::ones({col.size(0)}, at::kFloat), true);
  return ShortestPathMask(graph, at::zeros({1, max_distance + 2}), max_bytes).distance();
}

// [heads, rows, realisations] float64: standard normal numbers over sqrt(realisations). A filter of one tap
// hands on the noise as it is.
at::Tensor spe_noise(std::int64_t heads, std::int64_t rows, std::int64_t realisations, std::int64_t seed) {
  check(heads >= 1, "SpeMask: heads must be at least 1, got {}", heads);
  const at::Tensor tap = at::ones({heads, 1}, at::kDouble);
  return SpeMask::convolutional(rows, tap, tap, realisations, static_cast<std::uint64_t>(seed))
      ->low_rank()
      .left.contiguous();
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("forest_product", forest_product_op);
  m.impl("forest_product_backward", forest_product_backward_op);
  m.impl("hypercube_heat", hypercube_heat_op);
  m.impl("hypercube_heat_backward", hypercube_heat_backward_op);
  m.impl("check_hypercube", check_hypercube);
  m.impl("hop_distances", hop_distances);
  m.impl("spe_noise", spe_noise);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("forest_product", forest_product_autograd);
  m.impl("hypercube_heat", hypercube_heat_autograd);
}

}  // namespace topomask::ops
