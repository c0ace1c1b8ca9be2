// The paper's form, Phi_Q (Phi_K^T [V|1]): the mask is only ever applied to columns phi(k)_c * [V|1].
#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "attention/cpu/feature_attention.h"
#include "attention/engines.h"
#include "core/flops.h"
#include "masks/sparse_ops.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

struct FeatureEngineState : torch::CustomClassHolder {
  MaskPtr mask;  // kept alive for the backward pass
  std::int64_t block = 1;
};

// Contribution of a few features c to [numerator | normaliser]: sum_c q_c * M (k_c * [v|1]).
// q, k: [H, N, B, C], v1: [H, N, B, E] -> [H, N, B, E].
at::Tensor contribution(const Mask& mask, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v1) {
  const std::int64_t heads = q.size(0), n = q.size(1), batch = q.size(2), c = q.size(3), e = v1.size(3);
  const at::Tensor columns = (k.unsqueeze(-1) * v1.unsqueeze(-2)).reshape({heads, n, batch * c * e});
  const at::Tensor moved = mask.multiply(columns).view({heads, n, batch, c, e});
  count_multiply_adds(moved.numel());
  count_other_flops(columns.numel());
  // Not a matrix product: N products of 1 x C by C x E would cost more in calls than in arithmetic.
  return (q.unsqueeze(-1) * moved).sum(-2);
}

at::Tensor blocked_sums(const FeatureEngineState& state, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v1) {
  at::Tensor sum = at::zeros_like(v1);
  for (std::int64_t c = 0; c < q.size(3); c += state.block) {
    const std::int64_t end = std::min(q.size(3), c + state.block);
    sum.add_(contribution(*state.mask, q.slice(3, c, end), k.slice(3, c, end), v1));
  }
  return sum;
}

// All features at once through the fused kernel, for masks with sparse factors.
at::Tensor fused_sums(const Mask& mask, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v1) {
  const std::int64_t heads = q.size(0), n = q.size(1), batch = q.size(2), d_v = v1.size(3) - 1;
  const auto feature_major = [](const at::Tensor& x) {
    return x.permute({0, 2, 3, 1}).contiguous();
  };  // [H, B, C, N]
  const at::Tensor queries = feature_major(q), keys = feature_major(k);
  const at::Tensor values = v1.slice(3, 0, d_v).permute({0, 2, 1, 3}).contiguous();  // [H, B, N, d_v]
  at::Tensor numerator = at::zeros({heads, batch, n, d_v}, q.options());
  at::Tensor normaliser = at::zeros({heads, batch, n, 1}, q.options());
  at::Tensor scratch = at::empty({n, d_v + 1}, q.options());
  const std::vector<SparseFactors> factors = mask.sparse_factors();
  AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "feature_attention", [&] {
    for (std::int64_t h = 0; h < heads; ++h) {
      const SparseFactors& own = factors[factors.size() == 1 ? 0 : static_cast<std::size_t>(h)];
      const auto row_of = [&](const at::Tensor& all) {
        return all.size(0) == 1 ? all[0].to(q.scalar_type()).contiguous()
                                : all[h].to(q.scalar_type()).contiguous();
      };
      const at::Tensor left = row_of(own.left.values), right = row_of(own.right.values);
      FeatureAttention<scalar_t> head;
      head.query = rows_of(*own.left.pattern);
      head.key_columns = transposed_rows_of(*own.right.pattern);
      head.query_value = left.const_data_ptr<scalar_t>();
      head.key_value = right.const_data_ptr<scalar_t>();
      head.features = q.size(3);
      head.value_columns = d_v;
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t pair = h * batch + b;
        head.q = queries.const_data_ptr<scalar_t>() + pair * head.features * n;
        head.k = keys.const_data_ptr<scalar_t>() + pair * head.features * n;
        head.v = values.const_data_ptr<scalar_t>() + pair * n * d_v;
        feature_attention_forward(head, numerator.data_ptr<scalar_t>() + pair * n * d_v,
                                  normaliser.data_ptr<scalar_t>() + pair * n, scratch.data_ptr<scalar_t>());
      }
    }
  });
  return at::cat({numerator, normaliser}, -1).permute({0, 2, 1, 3}).contiguous();
}

// Runs over blocks of features; the backward pass runs each block again with gradients switched on.
class FeatureFunction : public torch::autograd::Function<FeatureFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v1, at::TensorList parameters,
                            const c10::intrusive_ptr<FeatureEngineState>& state) {
    const bool fused = q.is_cpu() && state->mask->profile().sparse_factors;
    const at::Tensor sum = fused ? fused_sums(*state->mask, q, k, v1) : blocked_sums(*state, q, k, v1);
    variable_list saved = {q, k, v1};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    context->save_for_backward(saved);
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    return sum;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto state =
        c10::static_intrusive_pointer_cast<FeatureEngineState>(context->saved_data["state"].toCapsule());
    const at::Tensor &q = saved[0], &k = saved[1], &v1 = saved[2];
    variable_list result = {at::zeros_like(q), at::zeros_like(k), at::zeros_like(v1)};
    const std::vector<at::Tensor> parameters(saved.begin() + 3, saved.end());
    result.resize(3 + parameters.size() + 1);
    for (std::int64_t c = 0; c < q.size(3); c += state->block) {
      const std::int64_t end = std::min(q.size(3), c + state->block);
      const at::AutoGradMode with_gradients(true);
      variable_list inputs = {q.slice(3, c, end).detach().requires_grad_(true),
                              k.slice(3, c, end).detach().requires_grad_(true),
                              v1.detach().requires_grad_(true)};
      const at::Tensor part = contribution(*state->mask, inputs[0], inputs[1], inputs[2]);
      for (const at::Tensor& parameter : parameters) {
        if (parameter.requires_grad()) inputs.push_back(parameter);
      }
      const variable_list part_grads =
          torch::autograd::grad({part}, inputs, {grads[0]}, /*retain_graph=*/true, /*create_graph=*/false,
                                /*allow_unused=*/true);
      result[0].slice(3, c, end).copy_(part_grads[0]);
      result[1].slice(3, c, end).copy_(part_grads[1]);
      result[2].add_(part_grads[2]);
      std::size_t next = 3;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        if (!parameters[i].requires_grad()) continue;
        const at::Tensor& grad = part_grads[next++];
        if (!grad.defined()) continue;
        result[3 + i] = result[3 + i].defined() ? result[3 + i] + grad : grad;
      }
    }
    return result;
  }
};

// [V | 1]
at::Tensor with_ones(const at::Tensor& v) {
  std::vector<std::int64_t> shape = v.sizes().vec();
  shape.back() = 1;
  return at::cat({v, at::ones(shape, v.options())}, -1);
}

// M_ij = sum_r left_ir right_jr: the rank joins the features, and the product is two ordinary matrix
// products.
at::Tensor attend_factors(const EngineInputs& inputs, const Factors& factors) {
  const at::Tensor left = factors.left.to(inputs.q.options()), right = factors.right.to(inputs.q.options());
  const auto join = [](const at::Tensor& x, const at::Tensor& factor) {
    return factor.size(-1) == 1 ? x * factor : (x.unsqueeze(-1) * factor.unsqueeze(-2)).flatten(-2);
  };
  const at::Tensor q = join(inputs.q, left), k = join(inputs.k, right), v1 = with_ones(inputs.v);
  count_multiply_adds(2 * q.numel() * v1.size(-1));
  return divide_by_normaliser(at::matmul(q, at::matmul(k.transpose(-2, -1), v1)), inputs.rule.guard);
}

}  // namespace

at::Tensor divide_by_normaliser(const at::Tensor& sums, double guard) {
  const std::int64_t d_v = sums.size(-1) - 1;
  const at::Tensor normaliser = sums.slice(-1, d_v, d_v + 1);
  const at::Tensor guarded = normaliser.abs() <= guard;
  count_other_flops(sums.numel());
  return sums.slice(-1, 0, d_v) * normaliser.masked_fill(guarded, 1).reciprocal().masked_fill(guarded, 0);
}

std::int64_t feature_block(const AttentionShape& shape, std::int64_t max_workspace) {
  const std::int64_t element = shape.dtype == at::kDouble ? 8 : 4;
  const std::int64_t column_bytes =
      std::max<std::int64_t>(1, element * shape.batch * shape.heads * shape.num_nodes * (shape.d_v + 1));
  // Columns, their image, what the mask makes in between, and the same again for gradients.
  const std::int64_t fits = max_workspace / (6 * column_bytes);
  std::int64_t block;
  if (shape.device.is_cpu()) {
    // Blocks that stay in the cache are faster than the largest that fit the memory: the mask gathers rows of
    // them at random.
    block = (std::int64_t{16} << 20) / column_bytes;
  } else {
    // A GPU, whose cache is larger, wants wide blocks, since each is several launches, and rows of whole
    // 16-byte vectors: d_v + 1 columns per feature are often odd.
    block = ((std::int64_t{256} << 20) / column_bytes + 3) / 4 * 4;
  }
  return std::clamp<std::int64_t>(std::min(block, fits), 1, std::max<std::int64_t>(shape.d, 1));
}

at::Tensor run_feature_engine(const EngineInputs& given, const MaskPtr& mask) {
  EngineInputs inputs = given;
  if (given.q.scalar_type() != at::kDouble) {  // masks are applied in at least float32
    for (at::Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = x->to(at::kFloat);
  }
  if (uses_factors(mask->profile())) return attend_factors(inputs, mask->factors());
  auto state = c10::make_intrusive<FeatureEngineState>();
  state->mask = mask;
  state->block = feature_block(AttentionShape::of(inputs.q, inputs.v), inputs.max_workspace);
  // Nodes first: the mask moves whole rows of columns.
  const auto by_node = [](const at::Tensor& x) { return x.permute({1, 2, 0, 3}).contiguous(); };
  // Each tensor once, even if parts of the mask share it: the gradient of each is that of all its uses.
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : mask->parameters()) {
    const bool known = std::any_of(parameters.begin(), parameters.end(),
                                   [&](const at::Tensor& other) { return other.is_same(parameter); });
    if (!known) parameters.push_back(parameter);
  }
  const at::Tensor sums = FeatureFunction::apply(
      by_node(inputs.q), by_node(inputs.k), by_node(with_ones(inputs.v)), at::TensorList(parameters), state);
  return divide_by_normaliser(sums, inputs.rule.guard).permute({2, 0, 1, 3});
}

}  // namespace topomask
