#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <bit>

#include "core/check.h"
#include "core/tensors.h"
#include "masks/arguments.h"
#include "masks/cpu/hypercube.h"
#include "masks/gpu.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"

namespace topomask {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int kMaxDimension = 30;  // nodes are int32

at::Tensor heat(int dimension, const at::Tensor& t, const at::Tensor& x) {
  at::Tensor y = x.clone(at::MemoryFormat::Contiguous);
  const at::Tensor times = t.contiguous();
  if (y.is_cuda()) {
    hypercube_heat_cuda(dimension, times, y);
    return y;
  }
  if (y.scalar_type() == at::kDouble) {
    hypercube_heat(dimension, times.const_data_ptr<double>(), y.size(0), y.size(2), y.data_ptr<double>());
  } else {
    hypercube_heat(dimension, times.const_data_ptr<float>(), y.size(0), y.size(2), y.data_ptr<float>());
  }
  return y;
}

// <x, L z> for each head
at::Tensor energy(int dimension, const at::Tensor& x, const at::Tensor& z) {
  if (x.is_cuda()) return hypercube_laplacian_cuda(dimension, z).mul_(x).sum({1, 2});
  at::Tensor result = at::empty({x.size(0)}, x.options());
  if (x.scalar_type() == at::kDouble) {
    hypercube_energy(dimension, x.size(0), x.size(2), x.const_data_ptr<double>(), z.const_data_ptr<double>(),
                     result.data_ptr<double>());
  } else {
    hypercube_energy(dimension, x.size(0), x.size(2), x.const_data_ptr<float>(), z.const_data_ptr<float>(),
                     result.data_ptr<float>());
  }
  return result;
}

// y = exp(-t L) x with L = D - A. M is symmetric and dM/dt = -L M: d<g, y>/dt = -<x, L M g>.
class HeatProduct : public torch::autograd::Function<HeatProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& t,
                            std::int64_t dimension) {
    context->save_for_backward({x, t});
    context->saved_data["dimension"] = dimension;
    return heat(static_cast<int>(dimension), t, x);
  }

  static variable_list backward(AutogradContext* context, variable_list grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const int dimension = static_cast<int>(context->saved_data["dimension"].toInt());
    const at::Tensor grad_x = heat(dimension, saved[1], grad_outputs[0]);
    at::Tensor grad_t;
    if (context->needs_input_grad(1)) grad_t = energy(dimension, saved[0].contiguous(), grad_x).neg();
    return {grad_x, grad_t, at::Tensor()};
  }
};

}  // namespace

HypercubeHeatMask::HypercubeHeatMask(int dimension, at::Tensor beta, Laplacian laplacian)
    : dimension_(dimension), beta_(std::move(beta)), laplacian_(laplacian) {
  check(dimension >= 0 && dimension <= kMaxDimension,
        "HypercubeHeatMask: dimension must be from 0 to {}, got {}", kMaxDimension, dimension);
  check_parameter("HypercubeHeatMask", "beta", beta_, {-1}, "[H]");
}

std::shared_ptr<const HypercubeHeatMask> HypercubeHeatMask::for_graph(const Graph& graph, at::Tensor beta,
                                                                      Laplacian laplacian) {
  const std::int64_t n = graph.num_nodes();
  check(n >= 1 && std::has_single_bit(static_cast<std::uint64_t>(n)),
        "HypercubeHeatMask: graph must be a hypercube of 2^d nodes, got {} nodes", n);
  const int dimension = std::countr_zero(static_cast<std::uint64_t>(n));
  // Compared before the other cube is built, so that a large graph of another kind costs nothing.
  check(graph.num_entries() == n * dimension,
        "HypercubeHeatMask: graph must be the hypercube of dimension {} with {} entries, got {} entries",
        dimension, n * dimension, graph.num_entries());
  const Graph cube = hypercube_graph(dimension), given = graph_on_cpu(graph);
  check(given.row_ptr.equal(cube.row_ptr) && given.col.equal(cube.col),
        "HypercubeHeatMask: graph must be the hypercube of dimension {} with the bits of a node as its "
        "coordinates, got "
        "another graph of {} nodes and {} entries",
        dimension, n, graph.num_entries());
  return std::make_shared<const HypercubeHeatMask>(dimension, std::move(beta), laplacian);
}

at::Tensor HypercubeHeatMask::multiply(const at::Tensor& x, bool) const {
  check_input(*this, x);
  at::Tensor t = beta_.to(x.scalar_type());
  if (laplacian_ == Laplacian::normalised) t = t / std::max(1, dimension_);
  return HeatProduct::apply(x, t.expand({x.size(0)}), std::int64_t{dimension_});
}

MaskProfile HypercubeHeatMask::profile() const {
  const double n = static_cast<double>(num_nodes());
  return basic_profile(*this, 2.0 * n * dimension_, 4 * 2 * n * std::max(1, dimension_ / 4));
}

MaskPtr HypercubeHeatMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"beta"}, &HypercubeHeatMask::beta_);
}

}  // namespace topomask
