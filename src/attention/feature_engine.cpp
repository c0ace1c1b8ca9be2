// The paper's form, Phi_Q (Phi_K^T [V|1]). Where both factors are sparse, column by column of Phi
// (column_engine.cpp); elsewhere the mask is applied to columns phi(k)_c * [V|1].
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "attention/engines.h"
#include "core/flops.h"
#include "topomask/masks.h"

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

// Runs over blocks of features; the backward pass runs each block again with gradients switched on.
class FeatureFunction : public torch::autograd::Function<FeatureFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v1, at::TensorList parameters,
                            const c10::intrusive_ptr<FeatureEngineState>& state) {
    const at::Tensor sum = blocked_sums(*state, q, k, v1);
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

// ---- by columns ----

struct ColumnEngineState : torch::CustomClassHolder {
  EngineInputs inputs;                 // but for q, k and v
  std::vector<SparseFactors> factors;  // but for their values
};

// Values of Phi and of Psi in turns, forward and backward.
std::vector<at::Tensor> values_of(const std::vector<SparseFactors>& factors) {
  std::vector<at::Tensor> values;
  for (const SparseFactors& own : factors) {
    values.push_back(own.left.values);
    values.push_back(own.right.values);
  }
  return values;
}
std::vector<SparseFactors> with_values(std::vector<SparseFactors> factors, at::TensorList values) {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    factors[i].left.values = values[2 * i];
    factors[i].right.values = values[2 * i + 1];
  }
  return factors;
}

class ColumnFunction : public torch::autograd::Function<ColumnFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, at::TensorList values,
                            const c10::intrusive_ptr<ColumnEngineState>& state) {
    EngineInputs inputs = state->inputs;
    inputs.q = q;
    inputs.k = k;
    inputs.v = v;
    const EngineResult result = column_engine_forward(inputs, with_values(state->factors, values));
    variable_list saved = {q, k, v, result.out, result.saved[0]};
    saved.insert(saved.end(), values.begin(), values.end());
    context->save_for_backward(saved);
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    return result.out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto state =
        c10::static_intrusive_pointer_cast<ColumnEngineState>(context->saved_data["state"].toCapsule());
    EngineInputs inputs = state->inputs;
    inputs.q = saved[0];
    inputs.k = saved[1];
    inputs.v = saved[2];
    const at::TensorList values = at::TensorList(saved).slice(5);
    bool mask_learns = false;
    for (std::size_t i = 0; i < values.size(); ++i)
      mask_learns = mask_learns || context->needs_input_grad(3 + i);
    EngineGradients found = column_engine_backward(grads[0], inputs, with_values(state->factors, values),
                                                   {saved[3], {saved[4]}}, mask_learns);
    found.mask.resize(values.size());
    variable_list all = {found.q, found.k, found.v};
    all.insert(all.end(), found.mask.begin(), found.mask.end());
    all.emplace_back();  // for the state
    return all;
  }
};

at::Tensor run_columns(const EngineInputs& inputs, const std::vector<SparseFactors>& factors) {
  auto state = c10::make_intrusive<ColumnEngineState>();
  state->inputs = inputs;
  state->inputs.q = state->inputs.k = state->inputs.v = at::Tensor();
  state->factors = factors;
  const std::vector<at::Tensor> values = values_of(factors);
  for (SparseFactors& own : state->factors) own.left.values = own.right.values = at::Tensor();
  return ColumnFunction::apply(inputs.q, inputs.k, inputs.v, at::TensorList(values), state);
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

at::Tensor with_ones(const at::Tensor& v) {
  std::vector<std::int64_t> shape = v.sizes().vec();
  shape.back() = 1;
  return at::cat({v, at::ones(shape, v.options())}, -1);
}

at::Tensor divide_by_normaliser(const at::Tensor& sums, double guard) {
  const std::int64_t d_v = sums.size(-1) - 1;
  const at::Tensor normaliser = sums.slice(-1, d_v, d_v + 1);
  const at::Tensor guarded = normaliser.abs() <= guard;
  count_other_flops(sums.numel());
  return sums.slice(-1, 0, d_v) * normaliser.masked_fill(guarded, 1).reciprocal().masked_fill(guarded, 0);
}

double feature_workspace(const AttentionShape& shape) {
  return 6.0 * (shape.dtype == at::kDouble ? 8 : 4) * static_cast<double>(shape.batch * shape.heads) *
         static_cast<double>(shape.num_nodes) * static_cast<double>(shape.d_v + 1);
}

std::int64_t feature_block(const AttentionShape& shape, std::int64_t max_workspace) {
  const double of_feature = std::max(feature_workspace(shape), 1.0), column_bytes = of_feature / 6;
  const auto whole = [](double x) { return static_cast<std::int64_t>(std::min(x, 0x1p61)); };
  const std::int64_t fits = whole(static_cast<double>(max_workspace) / of_feature);
  std::int64_t block;
  if (shape.device.is_cpu()) {
    // Blocks that stay in the cache are faster than the largest that fit the memory: the mask gathers rows of
    // them at random.
    block = whole((16 << 20) / column_bytes);
  } else {
    // A GPU, whose cache is larger, wants wide blocks, since each is several launches, and rows of whole
    // 16-byte vectors: d_v + 1 columns per feature are often odd.
    block = (whole((256 << 20) / column_bytes) + 3) / 4 * 4;
  }
  return std::clamp<std::int64_t>(std::min(block, fits), 1, std::max<std::int64_t>(shape.d, 1));
}

at::Tensor run_feature_engine(const EngineInputs& given, const MaskPtr& mask) {
  const MaskProfile profile = mask->profile();
  const bool unmasked = dynamic_cast<const NoMask*>(mask.get()) != nullptr;
  if (profile.sparse_factors || unmasked) {
    const std::vector<SparseFactors> factors =
        unmasked ? std::vector<SparseFactors>() : mask->sparse_factors();
    if (has_column_engine(given, factors)) return run_columns(given, factors);
  }
  EngineInputs inputs = given;
  if (given.q.scalar_type() != at::kDouble) {  // masks are applied in at least float32
    for (at::Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = x->to(at::kFloat);
  }
  if (given.rule.is_relu()) {
    for (at::Tensor* x : {&inputs.q, &inputs.k}) *x = x->clamp_min(0) + given.rule.epsilon;
  }
  if (uses_factors(profile)) return attend_factors(inputs, mask->factors());
  auto state = c10::make_intrusive<FeatureEngineState>();
  state->mask = mask;
  state->block = feature_block(AttentionShape::of(inputs.q, inputs.v), inputs.max_workspace);
  // Nodes first: the mask moves whole rows of columns.
  const auto by_node = [](const at::Tensor& x) { return x.permute({1, 2, 0, 3}).contiguous(); };
  // Each tensor once, even if parts of the mask share it: its gradient sums over all uses.
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
