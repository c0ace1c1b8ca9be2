#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "attention/engines.h"
#include "attention/gpu.h"
#include "core/flops.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

bool on_tensor_cores(const EngineInputs& inputs) {
  return runs_on_tensor_cores(inputs.q.scalar_type(), inputs.q.device(), inputs.q.size(3), inputs.v.size(3));
}

bool is_narrow(at::ScalarType dtype) {
  return dtype == at::kBFloat16 || dtype == at::kHalf;
}

// Queries, keys and values as the blocked path takes them: features, in at least float32.
EngineInputs widened(const EngineInputs& inputs) {
  EngineInputs wide = inputs;
  if (is_narrow(inputs.q.scalar_type())) {
    wide.q = inputs.q.to(at::kFloat);
    wide.k = inputs.k.to(at::kFloat);
    wide.v = inputs.v.to(at::kFloat);
  }
  if (inputs.rule.is_relu()) {
    wide.q = at::clamp_min(wide.q, 0).add_(inputs.rule.epsilon);
    wide.k = at::clamp_min(wide.k, 0).add_(inputs.rule.epsilon);
    wide.rule.kind = ScoreKind::features;
  }
  wide.v = wide.v.contiguous();  // or the product with every block would copy it
  return wide;
}

// The gradient of a wide operand as that of x, the operand itself. `relu`: features were max(x, 0) + epsilon,
// whose derivative is clamp_min's.
at::Tensor narrowed(at::Tensor grad, const at::Tensor& x, bool relu) {
  if (relu) grad.masked_fill_((x >= 0).logical_not_(), 0);
  return grad.to(x.scalar_type());
}

std::int64_t block_rows_of(const EngineInputs& inputs) {
  AttentionShape shape;
  shape.batch = inputs.q.size(0);
  shape.heads = inputs.q.size(1);
  shape.num_nodes = inputs.q.size(2);
  shape.dtype = inputs.q.scalar_type();
  // Blocks of scores that fit the cache are faster than the largest that fit the memory; a GPU wants more at
  // once.
  const std::int64_t block_bytes = std::int64_t{inputs.q.is_cuda() ? 256 : 32} << 20;
  return dense_block_rows(shape, std::min(inputs.max_workspace, block_bytes));
}

// Products <q_i, k_j> of a block of query rows, those of softmax times the scale: [B, H, R, N].
at::Tensor product_block(const ScoreRule& rule, const at::Tensor& q, const at::Tensor& k) {
  at::Tensor products = at::matmul(q, k.transpose(-2, -1));
  count_multiply_adds(products.numel() * q.size(3));
  return rule.is_softmax() ? products.mul_(rule.scale) : products;
}

// The largest exponent of each row that the mask lets through, so that a masked-out giant cannot underflow
// the rest; 0 where there is none. [B, H, R, 1]
at::Tensor row_max_of(const at::Tensor& exponents, const at::Tensor& mask) {
  const at::Tensor max =
      exponents.masked_fill(mask == 0, -std::numeric_limits<double>::infinity()).amax(-1, true);
  return max.masked_fill_(max.isinf(), 0);
}

EngineResult blocked_forward(const EngineInputs& given, const at::Tensor& matrix, bool learning) {
  const EngineInputs inputs = widened(given);
  const at::Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const at::Tensor mask = matrix.to(q.scalar_type());
  const bool softmax = inputs.rule.is_softmax();
  const std::int64_t n = q.size(2), block_rows = block_rows_of(inputs);
  at::Tensor out = at::empty(v.sizes(), v.options());
  at::Tensor inverse = at::empty(q.sizes().slice(0, 3), v.options());
  at::Tensor row_max = softmax ? at::empty_like(inverse) : at::empty({0}, v.options());
  for (std::int64_t row = 0; row < n; row += block_rows) {
    const std::int64_t end = std::min(n, row + block_rows);
    const at::Tensor mask_block = mask.slice(1, row, end);
    at::Tensor weights = product_block(inputs.rule, q.slice(2, row, end), k);
    if (softmax) {
      const at::Tensor block_max = row_max_of(weights, mask_block);
      row_max.slice(2, row, end).copy_(block_max.squeeze(-1));
      weights.sub_(block_max).exp_().masked_fill_(mask_block == 0, 0);
      count_other_flops(4 * weights.numel());
    }
    weights.mul_(mask_block);
    const at::Tensor normaliser = weights.sum(-1, true);
    const at::Tensor guarded = normaliser.abs() <= inputs.rule.guard;
    const at::Tensor block_inverse = normaliser.reciprocal().masked_fill_(guarded, 0);
    inverse.slice(2, row, end).copy_(block_inverse.squeeze(-1));
    out.slice(2, row, end).copy_(at::matmul(weights, v).mul_(block_inverse));
    count_multiply_adds(weights.numel() * v.size(3));
    count_other_flops(2 * weights.numel() + out.numel() / n * (end - row));
  }
  const at::Tensor narrow = out.to(given.v.scalar_type());
  if (!learning) return {narrow, {}};
  return {narrow, {inverse, row_max, narrow.is_same(out) ? at::empty({0}, out.options()) : out}};
}

EngineGradients blocked_backward(const at::Tensor& given_grad, const EngineInputs& given,
                                 const at::Tensor& matrix, const EngineResult& result, bool mask_learns) {
  const EngineInputs inputs = widened(given);
  const at::Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const at::Tensor mask = matrix.to(q.scalar_type()), grad_out = given_grad.to(q.scalar_type());
  const at::Tensor& out = is_narrow(given.v.scalar_type()) ? result.saved[2] : result.out;
  const bool softmax = inputs.rule.is_softmax();
  const std::int64_t n = q.size(2), block_rows = block_rows_of(inputs);
  const double largest_exponent = q.scalar_type() == at::kDouble ? 709 : 88;
  const at::Tensor inverse = result.saved[0].unsqueeze(-1);
  at::Tensor grad_q = at::empty(q.sizes(), q.options());
  at::Tensor grad_k = at::zeros_like(k), grad_v = at::zeros_like(v);
  at::Tensor grad_mask = mask_learns ? at::zeros(mask.sizes(), mask.options()) : at::Tensor();
  for (std::int64_t row = 0; row < n; row += block_rows) {
    const std::int64_t end = std::min(n, row + block_rows);
    const at::Tensor mask_block = mask.slice(1, row, end);
    const at::Tensor q_block = q.slice(2, row, end);
    at::Tensor scores = product_block(inputs.rule, q_block, k);
    const at::Tensor grad_sum = grad_out.slice(2, row, end) * inverse.slice(2, row, end);  // dL/d(numerator)
    const at::Tensor grad_norm = (grad_sum * out.slice(2, row, end)).sum(-1, true);  // -dL/d(normaliser)
    const at::Tensor grad_weights = at::matmul(grad_sum, v.transpose(-2, -1)).sub_(grad_norm);
    at::Tensor grad_entries;
    if (softmax) {
      scores.sub_(result.saved[1].slice(2, row, end).unsqueeze(-1));
      count_other_flops(4 * scores.numel());
      if (mask_learns) {
        // At a zero of M the score may be far above the maximum of its row. Multiplied in two halves,
        // exp(x / 2) each, it overflows only where the gradient does.
        const at::Tensor half = scores.mul_(0.5).clamp_max_(largest_exponent).exp_();
        grad_entries = (grad_weights * half).mul_(half);
        scores = half.mul_(half);
      } else {
        scores.exp_();
      }
      scores.masked_fill_(mask_block == 0, 0);
    } else if (mask_learns) {
      grad_entries = grad_weights * scores;
    }
    grad_v.add_(at::matmul((scores * mask_block).transpose(-2, -1), grad_sum));
    if (mask_learns) {
      at::Tensor by_head = grad_entries.sum(0);
      if (mask.size(0) == 1) by_head = by_head.sum(0, true);
      grad_mask.slice(1, row, end).add_(by_head);
    }
    at::Tensor grad_dots = grad_weights * mask_block;
    if (softmax) grad_dots.mul_(scores).mul_(inputs.rule.scale);
    grad_q.slice(2, row, end).copy_(at::matmul(grad_dots, k));
    grad_k.add_(at::matmul(grad_dots.transpose(-2, -1), q_block));
    count_multiply_adds(scores.numel() * 2 * (q.size(3) + v.size(3)));
    count_other_flops(5 * scores.numel());
  }
  const bool relu = given.rule.is_relu();
  EngineGradients grads = {
      narrowed(grad_q, given.q, relu), narrowed(grad_k, given.k, relu), narrowed(grad_v, given.v, false), {}};
  if (mask_learns) grads.mask = {grad_mask.to(matrix.scalar_type())};
  return grads;
}

struct DenseEngineState : torch::CustomClassHolder {
  ScoreRule rule;
  std::int64_t max_workspace = 0;
  bool learning = false;
};

class DenseFunction : public torch::autograd::Function<DenseFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& matrix,
                            const c10::intrusive_ptr<DenseEngineState>& state) {
    const EngineInputs inputs = {q, k, v, state->rule, state->max_workspace};
    const EngineResult result = dense_engine_forward(inputs, matrix, state->learning);
    if (state->learning) {
      variable_list saved = {q, k, v, matrix, result.out};
      saved.insert(saved.end(), result.saved.begin(), result.saved.end());
      context->save_for_backward(saved);
      context->saved_data["state"] = c10::IValue::make_capsule(state);
    }
    return result.out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const auto state =
        c10::static_intrusive_pointer_cast<DenseEngineState>(context->saved_data["state"].toCapsule());
    const EngineInputs inputs = {saved[0], saved[1], saved[2], state->rule, state->max_workspace};
    EngineGradients found = dense_engine_backward(
        grads[0], inputs, saved[3], {saved[4], {saved[5], saved[6], saved[7]}}, context->needs_input_grad(3));
    found.mask.resize(1);
    return {found.q, found.k, found.v, found.mask[0], at::Tensor()};
  }
};

}  // namespace

std::int64_t dense_block_rows(const AttentionShape& shape, std::int64_t max_workspace) {
  const std::int64_t element = shape.dtype == at::kDouble ? 8 : 4;
  // The backward pass holds about four blocks of scores at once; half of the workspace is left to the mask.
  const std::int64_t row_bytes =
      std::max<std::int64_t>(1, 4 * element * shape.batch * shape.heads * shape.num_nodes);
  return std::clamp<std::int64_t>(max_workspace / 2 / row_bytes, 1,
                                  std::max<std::int64_t>(shape.num_nodes, 1));
}

EngineResult dense_engine_forward(const EngineInputs& inputs, const at::Tensor& matrix, bool learning) {
  const at::NoGradGuard no_graph;
  if (on_tensor_cores(inputs)) return dense_engine_forward_on_tensor_cores(inputs, matrix, learning);
  return blocked_forward(inputs, matrix, learning);
}

EngineGradients dense_engine_backward(const at::Tensor& grad_out, const EngineInputs& inputs,
                                      const at::Tensor& matrix, const EngineResult& result,
                                      bool mask_learns) {
  const at::NoGradGuard no_graph;
  if (on_tensor_cores(inputs))
    return dense_engine_backward_on_tensor_cores(grad_out, inputs, matrix, result, mask_learns);
  return blocked_backward(grad_out, inputs, matrix, result, mask_learns);
}

std::vector<SavedTensor> dense_engine_saved(const AttentionShape& shape, ScoreKind kind) {
  const at::ScalarType dtype = shape.dtype == at::kDouble ? at::kDouble : at::kFloat;
  bool rounds_last = is_narrow(shape.dtype);
  rounds_last = rounds_last && !runs_on_tensor_cores(shape.dtype, shape.device, shape.d, shape.d_v);
  const std::vector<std::int64_t> rows = {shape.batch, shape.heads, shape.num_nodes}, none = {0};
  std::vector<std::int64_t> out = rows;
  out.push_back(shape.d_v);
  return {
      {rows, dtype}, {kind == ScoreKind::softmax ? rows : none, dtype}, {rounds_last ? out : none, dtype}};
}

at::Tensor mask_matrix(const EngineInputs& inputs, const Mask& mask) {
  const at::ScalarType dtype = inputs.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  // A mask that works anywhere writes itself out on the CPU.
  return mask.dense(dtype).to(inputs.q.device());
}

at::Tensor run_dense_engine(const EngineInputs& given, const Mask& mask) {
  // Copies and conversions are made here, where autograd sees them: the backward pass needs no others.
  EngineInputs inputs = given;
  if (on_tensor_cores(given)) {
    for (at::Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = as_rows(*x);
  } else {
    inputs = widened(given);
  }
  const at::Tensor matrix = mask_matrix(inputs, mask);
  auto state = c10::make_intrusive<DenseEngineState>();
  state->rule = inputs.rule;
  state->max_workspace = inputs.max_workspace;
  state->learning = at::GradMode::is_enabled() && (inputs.q.requires_grad() || inputs.k.requires_grad() ||
                                                   inputs.v.requires_grad() || matrix.requires_grad());
  return DenseFunction::apply(inputs.q, inputs.k, inputs.v, matrix, state).to(given.v.scalar_type());
}

}  // namespace topomask
