#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "core/tensors.h"
#include "masks/arguments.h"
#include "masks/cpu/distances.h"
#include "masks/gpu.h"
#include "topomask/masks.h"

namespace topomask {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kMaxTable = 256;  // distances and "farther" are kept in one byte

// [H, size] at [N, N] keys -> [H, N, N], without the N^2 wide indices a gather would need.
class LookUp : public torch::autograd::Function<LookUp> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& table, const at::Tensor& keys) {
    context->save_for_backward({keys});
    context->saved_data["size"] = table.size(1);
    const at::Tensor values = table.contiguous();
    if (values.is_cuda()) return look_up_cuda(keys, values);
    at::Tensor out = at::empty({values.size(0), keys.size(0), keys.size(1)}, values.options());
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "look_up", [&] {
      look_up(keys.const_data_ptr<std::uint8_t>(), keys.numel(), values.const_data_ptr<scalar_t>(),
              values.size(0), values.size(1), out.data_ptr<scalar_t>());
    });
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grad_outputs) {
    const at::Tensor keys = context->get_saved_variables()[0];
    const at::Tensor g = grad_outputs[0].contiguous();
    const std::int64_t size = context->saved_data["size"].toInt();
    if (g.is_cuda()) return {look_up_backward_cuda(keys, g, size), at::Tensor()};
    at::Tensor grad = at::empty({g.size(0), size}, g.options());
    AT_DISPATCH_FLOATING_TYPES(g.scalar_type(), "look_up_backward", [&] {
      look_up_backward(keys.const_data_ptr<std::uint8_t>(), keys.numel(), g.const_data_ptr<scalar_t>(),
                       g.size(0), size, grad.data_ptr<scalar_t>());
    });
    return {grad, at::Tensor()};
  }
};

}  // namespace

ShortestPathMask::ShortestPathMask(const Graph& graph, at::Tensor table, std::int64_t max_bytes)
    : table_(std::move(table)) {
  check_parameter("ShortestPathMask", "table", table_, {-1, -1}, "[H, max_distance + 2]");
  check(table_.size(1) >= 2 && table_.size(1) <= kMaxTable,
        "ShortestPathMask: table must be [H, max_distance + 2] with max_distance from 0 to {}, got {}",
        kMaxTable - 2, describe(table_));
  const std::int64_t n = graph.num_nodes();
  check(n == 0 || n <= max_bytes / n,
        "ShortestPathMask: the distances of {} nodes need {} bytes, but max_bytes is {}; choose a smaller "
        "graph or "
        "a mask that is not dense",
        n, static_cast<double>(n) * static_cast<double>(n), max_bytes);
  distance_ = at::empty({n, n}, at::kByte);
  const Graph given = graph_on_cpu(graph);
  all_pairs_distances(given.view(), static_cast<int>(table_.size(1)) - 2, distance_.data_ptr<std::uint8_t>());
  distance_ = distance_.to(table_.device());
}

at::Tensor ShortestPathMask::dense(at::ScalarType dtype) const {
  check(dtype == at::kFloat || dtype == at::kDouble, "mask '{}': dense expects float32 or float64, got {}",
        name(), c10::toString(dtype));
  return LookUp::apply(table_.to(dtype), distance_);
}

at::Tensor ShortestPathMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  const at::Tensor matrix = dense(x.scalar_type());
  return at::matmul(transposed ? matrix.transpose(-2, -1) : matrix, x);
}

MaskProfile ShortestPathMask::profile() const {
  return dense_profile(*this);
}

MaskPtr ShortestPathMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"table"}, &ShortestPathMask::table_);
}

}  // namespace topomask
