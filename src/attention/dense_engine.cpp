#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
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

struct State : torch::CustomClassHolder {
  bool softmax = false;
  double scale = 1, guard = 0;
  std::int64_t block_rows = 0;
};

// Scores e_ij of a block of query rows: [B, H, R, N].
at::Tensor score_block(const State& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask,
                       at::Tensor* row_max) {
  at::Tensor scores = at::matmul(q, k.transpose(-2, -1));
  count_multiply_adds(scores.numel() * q.size(3));
  if (!state.softmax) return scores;
  scores.mul_(state.scale);
  // The maximum runs over what the mask lets through, so that a masked-out giant cannot underflow the rest.
  if (!row_max->defined()) {
    const at::Tensor kept = scores.masked_fill(mask == 0, -std::numeric_limits<double>::infinity());
    *row_max = kept.amax(-1, true);
    row_max->masked_fill_(row_max->isinf(), 0);
  }
  count_other_flops(4 * scores.numel());
  return scores.sub_(*row_max).exp_().masked_fill_(mask == 0, 0);
}

class DenseAttention : public torch::autograd::Function<DenseAttention> {
 public:
  // mask: [1 or H, N, N]
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& mask,
                            const c10::intrusive_ptr<State>& state) {
    const std::int64_t n = q.size(2);
    at::Tensor out = at::empty(v.sizes(), v.options());
    at::Tensor inverse = at::empty({q.size(0), q.size(1), n, 1}, v.options());
    at::Tensor row_max = at::zeros({q.size(0), q.size(1), state->softmax ? n : 0, 1}, v.options());
    for (std::int64_t row = 0; row < n; row += state->block_rows) {
      const std::int64_t end = std::min(n, row + state->block_rows);
      const at::Tensor mask_block = mask.slice(1, row, end);
      at::Tensor block_max;
      at::Tensor weights = score_block(*state, q.slice(2, row, end), k, mask_block, &block_max);
      if (state->softmax) row_max.slice(2, row, end).copy_(block_max);
      weights.mul_(mask_block);
      const at::Tensor normaliser = weights.sum(-1, true);
      const at::Tensor guarded = normaliser.abs() <= state->guard;
      const at::Tensor block_inverse = normaliser.reciprocal().masked_fill_(guarded, 0);
      inverse.slice(2, row, end).copy_(block_inverse);
      out.slice(2, row, end).copy_(at::matmul(weights, v).mul_(block_inverse));
      count_multiply_adds(weights.numel() * v.size(3));
      count_other_flops(2 * weights.numel() + out.numel() / n * (end - row));
    }
    context->save_for_backward({q, k, v, mask, out, inverse, row_max});
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &mask = saved[3];
    const auto state = c10::static_intrusive_pointer_cast<State>(context->saved_data["state"].toCapsule());
    const std::int64_t n = q.size(2);
    const bool mask_learns = context->needs_input_grad(3);
    at::Tensor grad_q = at::empty(q.sizes(), q.options());
    at::Tensor grad_k = at::zeros_like(k), grad_v = at::zeros_like(v);
    at::Tensor grad_mask = mask_learns ? at::zeros(mask.sizes(), mask.options()) : at::Tensor();
    for (std::int64_t row = 0; row < n; row += state->block_rows) {
      const std::int64_t end = std::min(n, row + state->block_rows);
      const at::Tensor mask_block = mask.slice(1, row, end);
      const at::Tensor q_block = q.slice(2, row, end);
      at::Tensor block_max;
      if (state->softmax) block_max = saved[6].slice(2, row, end);
      const at::Tensor scores = score_block(*state, q_block, k, mask_block, &block_max);
      const at::Tensor grad_sum =
          grads[0].slice(2, row, end) * saved[5].slice(2, row, end);  // dL/d(numerator)
      const at::Tensor grad_norm =
          (grad_sum * saved[4].slice(2, row, end)).sum(-1, true);  // -dL/d(normaliser)
      const at::Tensor grad_weights = at::matmul(grad_sum, v.transpose(-2, -1)).sub_(grad_norm);
      grad_v.add_(at::matmul((scores * mask_block).transpose(-2, -1), grad_sum));
      if (mask_learns) {
        at::Tensor by_head = (grad_weights * scores).sum(0);
        if (mask.size(0) == 1) by_head = by_head.sum(0, true);
        grad_mask.slice(1, row, end).add_(by_head);
      }
      at::Tensor grad_dots = grad_weights * mask_block;
      if (state->softmax) grad_dots.mul_(scores).mul_(state->scale);
      grad_q.slice(2, row, end).copy_(at::matmul(grad_dots, k));
      grad_k.add_(at::matmul(grad_dots.transpose(-2, -1), q_block));
      count_multiply_adds(scores.numel() * 2 * (q.size(3) + v.size(3)));
      count_other_flops(5 * scores.numel());
    }
    return {grad_q, grad_k, grad_v, grad_mask, at::Tensor()};
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

namespace {

// Queries, keys and values as the blocked path takes them: features, in at least float32.
EngineInputs widened(const EngineInputs& inputs) {
  EngineInputs wide = inputs;
  if (inputs.q.scalar_type() == at::kBFloat16 || inputs.q.scalar_type() == at::kHalf) {
    wide.q = inputs.q.to(at::kFloat);
    wide.k = inputs.k.to(at::kFloat);
    wide.v = inputs.v.to(at::kFloat);
  }
  if (inputs.fused_relu) {
    wide.q = at::clamp_min(wide.q, 0).add_(inputs.epsilon);
    wide.k = at::clamp_min(wide.k, 0).add_(inputs.epsilon);
  }
  wide.v = wide.v.contiguous();  // or the product with every block would copy it
  return wide;
}

}  // namespace

at::Tensor run_dense_engine(const EngineInputs& given, const Mask& mask) {
  // A mask that works anywhere writes itself out on the CPU.
  const auto matrix = [&](at::ScalarType dtype) { return mask.dense(dtype).to(given.q.device()); };
  if (runs_on_tensor_cores(given)) return run_dense_engine_cuda(given, matrix(at::kFloat));
  const EngineInputs inputs = widened(given);
  auto state = c10::make_intrusive<State>();
  state->softmax = inputs.softmax;
  state->scale = inputs.scale;
  state->guard = inputs.guard;
  AttentionShape shape;
  shape.batch = inputs.q.size(0);
  shape.heads = inputs.q.size(1);
  shape.num_nodes = inputs.q.size(2);
  shape.dtype = inputs.q.scalar_type();
  // Blocks of scores that fit the cache are faster than the largest that fit the memory; a GPU wants more at
  // once.
  const std::int64_t block_bytes = std::int64_t{inputs.q.is_cuda() ? 256 : 32} << 20;
  state->block_rows = dense_block_rows(shape, std::min(inputs.max_workspace, block_bytes));
  return DenseAttention::apply(inputs.q, inputs.k, inputs.v, matrix(inputs.q.scalar_type()), state)
      .to(given.v.scalar_type());
}

}  // namespace topomask
