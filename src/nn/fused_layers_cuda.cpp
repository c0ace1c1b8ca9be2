#include "nn/gpu.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/cuda_launch.h"
#include "graph/gpu.h"
#include "nn/cuda/add_norm.h"
#include "nn/cuda/gathered_rows.h"
#include "nn/cuda/row_sums.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

bool has_kernels(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf;
}

LayerType layer_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return LayerType::bfloat16;
    case at::kHalf:
      return LayerType::float16;
    default:
      return LayerType::float32;
  }
}

// What products take: x's own type, or that of autocast.
at::ScalarType operand_type(const at::Tensor& x) {
  return at::autocast::is_autocast_enabled(at::kCUDA) ? at::autocast::get_autocast_dtype(at::kCUDA)
                                                      : x.scalar_type();
}

std::int64_t num_rows(const at::Tensor& x) {
  return x.numel() / x.size(-1);
}

// Of x, in which activations are stored as `dtype`.
LayerRows rows_of(const at::Tensor& x, at::ScalarType dtype) {
  return {num_rows(x), static_cast<int>(x.size(-1)), layer_type(dtype)};
}

const float* floats(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}

at::Tensor slices_like(const at::Tensor& x, std::int64_t count) {
  return at::empty({count, kRowSlices, x.size(-1)}, x.options().dtype(at::kFloat));
}

at::Tensor sum_rows(const at::Tensor& x) {
  const CudaLaunch launch(x);
  const at::Tensor result = at::empty({x.size(-1)}, x.options().dtype(at::kFloat));
  const at::Tensor slices = slices_like(x, 1);
  RowSums sums{rows_of(x, x.scalar_type())};
  sums.x = x.const_data_ptr();
  sums.sum = result.mutable_data_ptr<float>();
  sums.workspace = slices.mutable_data_ptr<float>();
  check_cuda(row_sums(sums, launch.stream), "gradient of a bias");
  return result;
}

class AddNorm : public torch::autograd::Function<AddNorm> {
 public:
  // Returns {normed}, or {normed, sum} where there is a branch.
  static variable_list forward(AutogradContext* context, const at::Tensor& x_in,
                               const std::optional<at::Tensor>& branch, const std::optional<at::Tensor>& bias,
                               const at::Tensor& weight, const at::Tensor& shift, double epsilon,
                               at::ScalarType dtype) {
    const at::Tensor x = x_in.contiguous();
    const CudaLaunch launch(x);
    const at::Tensor normed = at::empty(x.sizes(), x.options().dtype(dtype));
    const at::Tensor mean = at::empty({num_rows(x)}, x.options()), inverse = at::empty_like(mean);
    AddNormForward f{rows_of(x, dtype)};
    f.epsilon = static_cast<float>(epsilon);
    f.x = floats(x);
    f.weight = floats(weight);
    f.shift = floats(shift);
    f.normed = normed.mutable_data_ptr();
    f.mean = mean.mutable_data_ptr<float>();
    f.inverse = inverse.mutable_data_ptr<float>();
    at::Tensor sum = x, added;
    if (branch) {
      sum = at::empty_like(x);
      added = branch->contiguous();
      f.branch = added.const_data_ptr();
      f.bias = bias ? floats(*bias) : nullptr;
      f.sum = sum.mutable_data_ptr<float>();
    }
    check_cuda(add_norm_forward(f, launch.stream), "sum and norm");
    context->save_for_backward({sum, mean, inverse, weight});
    context->set_materialize_grads(false);
    context->saved_data["branch"] = branch.has_value();
    context->saved_data["bias"] = bias.has_value();
    if (!branch) return {normed};
    return {normed, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &mean = saved[1], &inverse = saved[2], &weight = saved[3];
    const bool has_branch = context->saved_data["branch"].toBool(),
               has_bias = context->saved_data["bias"].toBool();
    at::Tensor grad_sum;
    if (has_branch && grads[1].defined()) grad_sum = grads[1].contiguous();
    if (!grads[0].defined())
      return {grad_sum, grad_sum, has_bias ? sum_rows(grad_sum) : at::Tensor(), {}, {}, {}, {}};
    const at::Tensor grad_normed = grads[0].contiguous();
    const at::ScalarType dtype = grad_normed.scalar_type();
    const CudaLaunch launch(sum);
    const at::Tensor grad_x = at::empty_like(sum);
    const at::Tensor parameters = at::empty({3, sum.size(-1)}, sum.options());
    const at::Tensor slices = slices_like(sum, 3);
    at::Tensor grad_branch;
    AddNormBackward b{rows_of(sum, dtype)};
    b.sum = floats(sum);
    b.mean = floats(mean);
    b.inverse = floats(inverse);
    b.weight = floats(weight);
    b.grad_normed = grad_normed.const_data_ptr();
    b.grad_sum = floats(grad_sum);
    b.grad_x = grad_x.mutable_data_ptr<float>();
    if (has_branch) {
      grad_branch = dtype == at::kFloat ? grad_x : at::empty(sum.sizes(), sum.options().dtype(dtype));
      b.grad_branch = dtype == at::kFloat ? nullptr : grad_branch.mutable_data_ptr();
    }
    b.parameters = parameters.mutable_data_ptr<float>();
    b.workspace = slices.mutable_data_ptr<float>();
    check_cuda(add_norm_backward(b, launch.stream), "gradient of a sum and norm");
    return {grad_x, grad_branch, has_bias ? parameters[2] : at::Tensor(), parameters[0], parameters[1],
            {},     {}};
  }
};

class BiasedGelu : public torch::autograd::Function<BiasedGelu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in, const at::Tensor& bias) {
    const at::Tensor x = x_in.contiguous();
    const CudaLaunch launch(x);
    const at::Tensor y = at::empty_like(x);
    BiasGelu g{rows_of(x, x.scalar_type())};
    g.x = x.const_data_ptr();
    g.bias = floats(bias);
    g.y = y.mutable_data_ptr();
    check_cuda(bias_gelu_forward(g, launch.stream), "GELU");
    context->save_for_backward({x, bias});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &bias = saved[1];
    const at::Tensor grad_y = grads[0].contiguous();
    const CudaLaunch launch(x);
    const at::Tensor grad_x = at::empty_like(x), grad_bias = at::empty_like(bias);
    const at::Tensor slices = slices_like(x, 1);
    BiasGeluBackward g{rows_of(x, x.scalar_type())};
    g.x = x.const_data_ptr();
    g.bias = floats(bias);
    g.grad_y = grad_y.const_data_ptr();
    g.grad_x = grad_x.mutable_data_ptr();
    g.grad_bias = grad_bias.mutable_data_ptr<float>();
    g.workspace = slices.mutable_data_ptr<float>();
    check_cuda(bias_gelu_backward(g, launch.stream), "gradient of a GELU");
    return {grad_x, grad_bias};
  }
};

class Linear : public torch::autograd::Function<Linear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in, const at::Tensor& weight_in,
                            const at::Tensor& bias, at::ScalarType dtype) {
    const at::Tensor x = x_in.to(dtype), weight = weight_in.to(dtype);
    context->save_for_backward({x, weight});
    context->saved_data["x"] = x_in.scalar_type();
    return at::linear(x, weight, bias.to(dtype));
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor grad = grads[0].contiguous().view({-1, weight.size(0)});
    at::Tensor grad_x;
    if (context->needs_input_grad(0))
      grad_x = at::mm(grad, weight).view(x.sizes()).to(context->saved_data["x"].toScalarType());
    const at::Tensor grad_weight = at::mm(grad.t(), x.reshape({-1, weight.size(1)})).to(at::kFloat);
    return {grad_x, grad_weight, sum_rows(grad), {}};
  }
};

class CopiedRows : public torch::autograd::Function<CopiedRows> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& index,
                            const at::Tensor& ptr, const at::Tensor& entry) {
    context->save_for_backward({ptr, entry});
    return x.index_select(0, index);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor grad = grads[0].contiguous();
    const CudaLaunch launch(grad);
    const at::Tensor sum = at::empty({saved[0].size(0) - 1, grad.size(1)}, grad.options());
    RowsByTarget rows{rows_of(sum, grad.scalar_type())};
    rows.x = grad.const_data_ptr();
    rows.ptr = saved[0].const_data_ptr<std::int64_t>();
    rows.entry = saved[1].const_data_ptr<std::int32_t>();
    rows.sum = sum.mutable_data_ptr();
    check_cuda(sum_rows_by_target(rows, launch.stream), "gradient of copied rows");
    return {sum, {}, {}, {}};
  }
};

}  // namespace

CopiesByRow copies_by_row_cuda(const at::Tensor& index, std::int64_t rows) {
  const at::Tensor each = at::arange(index.numel() + 1, index.options().dtype(at::kLong));
  const TransposedEntries entries = transpose_entries_cuda(each, index.flatten().to(at::kInt), rows);
  return {entries.ptr, entries.entry};
}

bool fuses_copies(const at::Tensor& x, const CopiesByRow& by_row) {
  return by_row.ptr.defined() && x.is_cuda() && has_kernels(x.scalar_type()) && x.numel() > 0;
}

at::Tensor copied_rows_cuda(const at::Tensor& x, const at::Tensor& index, const CopiesByRow& by_row) {
  return CopiedRows::apply(x, index, by_row.ptr, by_row.entry);
}

bool fuses_rows(const at::Tensor& x, const at::Tensor& bias) {
  return x.is_cuda() && has_kernels(x.scalar_type()) && bias.scalar_type() == at::kFloat &&
         x.size(-1) % 4 == 0 && x.numel() > 0;
}

bool fuses_add_norm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& bias) {
  if (!x.is_cuda() || x.scalar_type() != at::kFloat || x.size(-1) > kMostNormChannels ||
      x.size(-1) % 4 != 0 || x.numel() == 0 || !has_kernels(operand_type(x)))
    return false;
  if (!branch.defined()) return true;
  return branch.scalar_type() == operand_type(x) && branch.sizes() == x.sizes() &&
         (!bias.defined() || bias.scalar_type() == at::kFloat);
}

std::pair<at::Tensor, at::Tensor> add_norm_cuda(const at::Tensor& x, const at::Tensor& branch,
                                                const at::Tensor& bias, const at::Tensor& weight,
                                                const at::Tensor& shift, double epsilon) {
  const auto if_defined = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const variable_list result =
      AddNorm::apply(x, if_defined(branch), if_defined(bias), weight, shift, epsilon, operand_type(x));
  return {branch.defined() ? result[1] : x, result[0]};
}

at::Tensor bias_gelu_cuda(const at::Tensor& x, const at::Tensor& bias) {
  return BiasedGelu::apply(x, bias);
}

bool fuses_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return fuses_rows(x, bias) && weight.scalar_type() == at::kFloat && weight.size(0) % 4 == 0 &&
         has_kernels(operand_type(x));
}

at::Tensor linear_cuda(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return Linear::apply(x, weight, bias, operand_type(x));
}

}  // namespace topomask
