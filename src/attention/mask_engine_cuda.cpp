#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <torch/csrc/autograd/custom_function.h>

#include "attention/cuda/row_attention.h"
#include "attention/gpu.h"
#include "core/cuda_launch.h"
#include "core/flops.h"
#include "masks/gpu.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

struct State : torch::CustomClassHolder {
  std::vector<std::shared_ptr<const SparsePattern>> patterns;  // one, or one per head
  RowAttentionShape shape;                                     // of all heads
};

Real real_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return Real::bfloat16;
    case at::kHalf:
      return Real::float16;
    case at::kDouble:
      return Real::float64;
    default:
      return Real::float32;
  }
}

at::ScalarType accumulator(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor adjacent_columns(const at::Tensor& x) {
  return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous();
}

// The rows of x from head `head` on.
Rows4 rows_from(const at::Tensor& x, std::int64_t head) {
  const std::int64_t offset = head * x.stride(1) * static_cast<std::int64_t>(x.element_size());
  return {static_cast<char*>(x.data_ptr()) + offset, x.stride(0), x.stride(1), x.stride(2)};
}

void* from_pair(const at::Tensor& x, std::int64_t pair) {
  if (!x.defined() || x.numel() == 0) return nullptr;
  return static_cast<char*>(x.data_ptr()) + pair * x.stride(0) * static_cast<std::int64_t>(x.element_size());
}

// The heads that one pattern serves: all, or its own. What is kept for every (head, batch entry) is ordered
// so that those of one pattern stand together.
struct Share {
  RowAttentionShape shape;
  std::int64_t first_head = 0, first_pair = 0;

  Share(const State& state, std::size_t which) : shape(state.shape) {
    if (state.patterns.size() == 1) return;
    first_head = static_cast<std::int64_t>(which);
    first_pair = first_head * shape.batch;
    shape.heads = 1;
  }
  std::int64_t pairs() const { return shape.batch * shape.heads; }
};

at::Tensor workspace_for(const DeviceRows& rows, const RowAttentionShape& shape,
                         const at::TensorOptions& options) {
  return at::empty({row_attention_workspace(rows, shape)}, options);
}

// dL/dM [batch, heads or sums of some, nnz] summed over the batch, and over heads that share values, in one
// fixed order.
at::Tensor summed(const at::Tensor& grad_value, bool share_values, Real dtype, cudaStream_t stream) {
  constexpr std::int64_t kFewRows = 64;  // one thread adds up those of an entry
  if (!share_values) return grad_value.size(0) == 1 ? grad_value[0] : grad_value.sum(0);
  const std::int64_t rows = grad_value.size(0) * grad_value.size(1), nnz = grad_value.size(2);
  if (rows > kFewRows) return grad_value.sum(at::IntArrayRef{0, 1}).unsqueeze(0);
  at::Tensor sum = at::empty({1, nnz}, grad_value.options());
  check_cuda(sum_of_rows(grad_value.const_data_ptr(), dtype, rows, nnz, sum.data_ptr(), stream),
             "mask engine, sum over heads");
  return sum;
}

class MaskAttentionOnGpu : public torch::autograd::Function<MaskAttentionOnGpu> {
 public:
  // values: one tensor a pattern, [1 or heads, nnz], float32 (float64 for float64 q).
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, at::TensorList values,
                            const c10::intrusive_ptr<State>& state) {
    const CudaLaunch launch(q);
    const at::TensorOptions options = q.options().dtype(accumulator(q.scalar_type()));
    const std::int64_t pairs = q.size(0) * q.size(1), n = q.size(2);
    at::Tensor out = at::empty_like(v);
    at::Tensor inverse = at::empty({pairs, n}, options);
    at::Tensor row_max = at::empty({state->shape.softmax ? pairs : 0, n}, options);
    bool learning = q.requires_grad() || k.requires_grad() || v.requires_grad();
    for (const at::Tensor& own : values) learning = learning || own.requires_grad();
    variable_list dots;
    for (std::size_t which = 0; which < state->patterns.size(); ++which) {
      const Share share(*state, which);
      const SparsePattern& pattern = *state->patterns[which];
      RowAttentionForward pass;
      pass.shape = share.shape;
      pass.dtype = real_of(q.scalar_type());
      pass.mask = device_rows(pattern);
      pass.q = rows_from(q, share.first_head);
      pass.k = rows_from(k, share.first_head);
      pass.v = rows_from(v, share.first_head);
      pass.out = rows_from(out, share.first_head);
      pass.value = values[which].data_ptr();
      pass.value_step = values[which].size(0) == 1 ? 0 : pattern.nnz();
      pass.inverse = from_pair(inverse, share.first_pair);
      pass.row_max = from_pair(row_max, share.first_pair);
      // One number a nonzero, written in order: cheaper to keep than two rows are to gather again.
      dots.push_back(at::empty({learning ? share.pairs() : 0, pattern.nnz()}, options));
      pass.dot = from_pair(dots.back(), 0);
      const at::Tensor workspace = workspace_for(pass.mask, pass.shape, options);
      pass.workspace = workspace.data_ptr();
      check_cuda(row_attention_forward(pass, launch.stream), "mask engine");
      count_multiply_adds(share.pairs() * pattern.nnz() * (q.size(3) + v.size(3)));
      count_other_flops(share.pairs() * (pattern.nnz() * (share.shape.softmax ? 6 : 3) + n));
    }
    variable_list saved = {q, k, v, out, inverse, row_max};
    saved.insert(saved.end(), values.begin(), values.end());
    saved.insert(saved.end(), dots.begin(), dots.end());
    context->save_for_backward(saved);
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const auto state = c10::static_intrusive_pointer_cast<State>(context->saved_data["state"].toCapsule());
    const CudaLaunch launch(q);
    const at::TensorOptions options = q.options().dtype(accumulator(q.scalar_type()));
    const at::Tensor grad_out = adjacent_columns(grads[0]);
    at::Tensor grad_q = at::empty_like(q), grad_k = at::empty_like(k), grad_v = at::empty_like(v);
    const std::size_t patterns = state->patterns.size();
    variable_list grad_values(patterns);
    for (std::size_t which = 0; which < patterns; ++which) {
      const Share share(*state, which);
      const SparsePattern& pattern = *state->patterns[which];
      const at::Tensor &values = saved[6 + which], &dots = saved[6 + patterns + which];
      RowAttentionBackward pass;
      pass.shape = share.shape;
      pass.dtype = real_of(q.scalar_type());
      pass.mask = device_rows(pattern);
      pass.columns = device_columns(pattern);
      pass.q = rows_from(q, share.first_head);
      pass.k = rows_from(k, share.first_head);
      pass.v = rows_from(v, share.first_head);
      pass.out = rows_from(saved[3], share.first_head);
      pass.grad_out = rows_from(grad_out, share.first_head);
      pass.value = values.data_ptr();
      pass.value_step = values.size(0) == 1 ? 0 : pattern.nnz();
      pass.inverse = from_pair(saved[4], share.first_pair);
      pass.row_max = from_pair(saved[5], share.first_pair);
      pass.dot = from_pair(dots, 0);
      pass.grad_q = rows_from(grad_q, share.first_head);
      pass.grad_k = rows_from(grad_k, share.first_head);
      pass.grad_v = rows_from(grad_v, share.first_head);
      at::Tensor grad_value;
      if (context->needs_input_grad(3 + which)) {
        const std::int64_t sums = share.shape.heads / row_attention_summed_heads(pass);
        grad_value = empty_values(pattern, {share.shape.batch, sums, pattern.nnz()}, options);
      }
      pass.grad_value = from_pair(grad_value, 0);
      const at::Tensor weights = at::empty({share.pairs(), pattern.nnz(), 2}, options);
      pass.weights = weights.data_ptr();
      at::Tensor workspace = workspace_for(pass.mask, pass.shape, options);
      pass.workspace = workspace.data_ptr();
      check_cuda(row_attention_backward(pass, launch.stream), "mask engine, backward over rows");
      workspace = workspace_for(pass.columns, pass.shape, options);
      pass.workspace = workspace.data_ptr();
      check_cuda(column_attention_backward(pass, launch.stream), "mask engine, backward over columns");
      if (grad_value.defined()) {
        const bool share_values = values.size(0) != share.shape.heads;
        grad_values[which] = summed(grad_value, share_values, pass.dtype, launch.stream);
      }
      count_multiply_adds(2 * share.pairs() * pattern.nnz() * (q.size(3) + v.size(3)));
      count_other_flops(share.pairs() * pattern.nnz() * (share.shape.softmax ? 10 : 6));
    }
    variable_list result = {grad_q, grad_k, grad_v};
    result.insert(result.end(), grad_values.begin(), grad_values.end());
    result.emplace_back();
    return result;
  }
};

}  // namespace

at::Tensor run_mask_engine_cuda(const EngineInputs& inputs, const std::vector<SparseEntries>& entries) {
  auto state = c10::make_intrusive<State>();
  std::vector<at::Tensor> values;
  for (const SparseEntries& own : entries) {
    state->patterns.push_back(own.pattern);
    values.push_back(own.values.to(accumulator(inputs.q.scalar_type())).contiguous());
  }
  RowAttentionShape& shape = state->shape;
  shape.batch = inputs.q.size(0);
  shape.heads = inputs.q.size(1);
  shape.features = inputs.q.size(3);
  shape.value_columns = inputs.v.size(3);
  shape.relu = inputs.fused_relu;
  shape.softmax = inputs.softmax;
  shape.epsilon = inputs.epsilon;
  shape.scale = inputs.scale;
  shape.guard = inputs.guard;
  return MaskAttentionOnGpu::apply(adjacent_columns(inputs.q), adjacent_columns(inputs.k),
                                   adjacent_columns(inputs.v), at::TensorList(values), state);
}

}  // namespace topomask
