#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "core/tensors.h"
#include "masks/arguments.h"
#include "masks/cpu/forest.h"
#include "masks/forest_ops.h"
#include "masks/gpu.h"
#include "topomask/masks.h"

namespace topomask {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Lets the context keep the forest alive until the backward pass.
struct ForestHolder : torch::CustomClassHolder {
  explicit ForestHolder(Forest f) : forest(std::move(f)) {}
  Forest forest;
};

void run_product(const Forest& forest, const at::Tensor& a, const at::Tensor& x, const at::Tensor& y,
                 const at::Tensor& derivative) {
  if (x.is_cuda()) return forest_product_cuda(*forest.on_device, a, x, y, derivative);
  const RootedForest& rooted = *forest.rooted;
  const std::int64_t heads = x.size(0), columns = x.size(2);
  if (x.scalar_type() == at::kDouble) {
    forest_product(rooted, a.const_data_ptr<double>(), heads, columns, x.const_data_ptr<double>(),
                   y.data_ptr<double>(), derivative.defined() ? derivative.data_ptr<double>() : nullptr);
  } else {
    forest_product(rooted, a.const_data_ptr<float>(), heads, columns, x.const_data_ptr<float>(),
                   y.data_ptr<float>(), derivative.defined() ? derivative.data_ptr<float>() : nullptr);
  }
}

// y = exp(a dist) x; exp(b) is left to the caller. The matrix E is symmetric, so <g, E' x> = <E' g, x> and
// one pass of dual numbers over g yields both gradients.
class ForestProduct : public torch::autograd::Function<ForestProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& a,
                            const c10::intrusive_ptr<ForestHolder>& holder) {
    context->save_for_backward({x, a});
    context->saved_data["forest"] = c10::IValue::make_capsule(holder);
    at::Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
    run_product(holder->forest, a.contiguous(), x.contiguous(), y, at::Tensor());
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor a = saved[1].contiguous();
    const auto holder =
        c10::static_intrusive_pointer_cast<ForestHolder>(context->saved_data["forest"].toCapsule());
    const at::Tensor g = grad_outputs[0].contiguous();
    at::Tensor grad_x = at::empty_like(g), derivative, grad_a;
    if (context->needs_input_grad(1)) derivative = at::empty_like(g);
    run_product(holder->forest, a, g, grad_x, derivative);
    if (derivative.defined()) grad_a = derivative.mul_(x).sum({1, 2});
    return {grad_x, grad_a, at::Tensor()};
  }
};

}  // namespace

Forest make_forest(const Graph& graph, bool weighted, c10::Device device) {
  const Graph given = graph_on_cpu(graph);
  Forest forest;
  forest.rooted = std::make_shared<const RootedForest>(root_forest(given.view(), weighted));
  if (device.is_cuda()) forest.on_device = forest_on_cuda(*forest.rooted, device);
  return forest;
}

at::Tensor multiply_by_forest(const Forest& forest, const at::Tensor& x, const at::Tensor& a) {
  return ForestProduct::apply(x, a, c10::make_intrusive<ForestHolder>(forest));
}

ForestMask::ForestMask(const Graph& graph, at::Tensor a, at::Tensor b, Length length)
    : num_nodes_(graph.num_nodes()), a_(std::move(a)), b_(std::move(b)) {
  check_parameter("ForestMask", "a", a_, {-1}, "[H]");
  const std::string shape = fmt::format("[{}], as a", a_.size(0));
  check_parameter("ForestMask", "b", b_, {a_.size(0)}, shape.c_str());
  check_same_device("ForestMask", "b", b_, "a", a_);
  check(!graph.directed, "ForestMask: graph must be undirected, got a directed graph of {} nodes",
        num_nodes_);
  const Forest made = make_forest(graph, length == Length::edge_weight, a_.device());
  forest_ = made.rooted;
  on_device_ = made.on_device;
}

at::Tensor ForestMask::multiply(const at::Tensor& x, bool) const {
  check_input(*this, x);
  const at::Tensor a = a_.to(x.scalar_type()).expand({x.size(0)});
  const at::Tensor scale = b_.to(x.scalar_type()).exp().view({-1, 1, 1});
  return multiply_by_forest({forest_, on_device_}, x, a) * scale;
}

MaskProfile ForestMask::profile() const {
  const double n = static_cast<double>(num_nodes_);
  return basic_profile(*this, 5 * n, 4 * 8 * n);
}

MaskPtr ForestMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"a", "b"}, &ForestMask::a_, &ForestMask::b_);
}

}  // namespace topomask
