#include <ATen/Dispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "attention/cpu/row_attention.h"
#include "attention/engines.h"
#include "attention/gpu.h"
#include "masks/sparse_ops.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

struct State : torch::CustomClassHolder {
  std::shared_ptr<const SparsePattern> pattern;
  bool softmax = false, relu = false;
  double scale = 1, guard = 0, epsilon = 0;
};

// q, k, v and a result of this size each leave nothing in the caches of most processors.
constexpr std::int64_t kPastCachesBytes = std::int64_t{4} << 20;

// One (batch entry, head) of the tensors involved.
template <class T>
RowAttention<T> head_of(const State& state, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& values, std::int64_t index) {
  const std::int64_t n = q.size(2), m = q.size(3), d_v = v.size(3);
  const std::int64_t value_row = values.size(0) == 1 ? 0 : index % q.size(1);
  RowAttention<T> head;
  head.mask = rows_of(*state.pattern);
  head.value = values.const_data_ptr<T>() + value_row * values.size(1);
  head.features = m;
  head.value_columns = d_v;
  head.q = q.const_data_ptr<T>() + index * n * m;
  head.k = k.const_data_ptr<T>() + index * n * m;
  head.v = v.const_data_ptr<T>() + index * n * d_v;
  head.relu = state.relu;
  head.epsilon = static_cast<T>(state.epsilon);
  head.softmax = state.softmax;
  head.scale = static_cast<T>(state.scale);
  head.guard = static_cast<T>(state.guard);
  head.past_caches = static_cast<std::int64_t>(v.nbytes()) >= kPastCachesBytes;
  return head;
}

class MaskAttention : public torch::autograd::Function<MaskAttention> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& values,
                            const c10::intrusive_ptr<State>& state) {
    const std::int64_t pairs = q.size(0) * q.size(1), n = q.size(2), d_v = v.size(3);
    at::Tensor out = at::empty(v.sizes(), v.options());
    at::Tensor inverse = at::empty({pairs, n}, v.options());
    at::Tensor row_max = at::empty({state->softmax ? pairs : 0, n}, v.options());
    // One number a nonzero, as many as the mask itself has: cheaper to keep than two rows are to fetch again.
    const bool learning =
        q.requires_grad() || k.requires_grad() || v.requires_grad() || values.requires_grad();
    const std::int64_t nnz = values.size(1);
    at::Tensor dots = at::empty({learning ? pairs : 0, nnz}, v.options());
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "mask_attention", [&] {
      for (std::int64_t i = 0; i < pairs; ++i) {
        row_attention_forward(head_of<scalar_t>(*state, q, k, v, values, i),
                              out.data_ptr<scalar_t>() + i * n * d_v, inverse.data_ptr<scalar_t>() + i * n,
                              state->softmax ? row_max.data_ptr<scalar_t>() + i * n : nullptr,
                              learning ? dots.data_ptr<scalar_t>() + i * nnz : nullptr);
      }
    });
    context->save_for_backward({q, k, v, values, out, inverse, row_max, dots});
    context->saved_data["state"] = c10::IValue::make_capsule(state);
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2], &values = saved[3], &out = saved[4];
    const auto state = c10::static_intrusive_pointer_cast<State>(context->saved_data["state"].toCapsule());
    const at::Tensor grad_out = grads[0].contiguous();
    const std::int64_t pairs = q.size(0) * q.size(1), n = q.size(2), m = q.size(3), d_v = v.size(3);
    const std::int64_t nnz = values.size(1);
    at::Tensor grad_q = at::empty(q.sizes(), q.options()), grad_k = at::empty(k.sizes(), k.options());
    at::Tensor grad_v = at::empty(v.sizes(), v.options());
    at::Tensor grad_values = pairs == 0 ? at::zeros(values.sizes(), values.options())
                                        : at::empty(values.sizes(), values.options());
    const at::Tensor weights = at::empty({nnz, 2}, q.options());
    const SparseRows columns = transposed_rows_of(*state->pattern);
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "mask_attention_backward", [&] {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int64_t value_row = values.size(0) == 1 ? 0 : i % q.size(1);
        RowAttentionGradients<scalar_t> pass;
        pass.grad_out = grad_out.const_data_ptr<scalar_t>() + i * n * d_v;
        pass.out = out.const_data_ptr<scalar_t>() + i * n * d_v;
        pass.inverse_normaliser = saved[5].const_data_ptr<scalar_t>() + i * n;
        if (state->softmax) pass.row_max = saved[6].const_data_ptr<scalar_t>() + i * n;
        pass.dot = saved[7].const_data_ptr<scalar_t>() + i * nnz;
        pass.grad_q = grad_q.data_ptr<scalar_t>() + i * n * m;
        pass.grad_k = grad_k.data_ptr<scalar_t>() + i * n * m;
        pass.grad_v = grad_v.data_ptr<scalar_t>() + i * n * d_v;
        pass.grad_value = grad_values.data_ptr<scalar_t>() + value_row * nnz;
        pass.accumulate = i >= values.size(0);
        pass.weights = reinterpret_cast<ColumnWeights<scalar_t>*>(weights.data_ptr<scalar_t>());
        row_attention_backward(head_of<scalar_t>(*state, q, k, v, values, i), columns, pass);
      }
    });
    return {grad_q, grad_k, grad_v, grad_values, at::Tensor()};
  }
};

at::Tensor attend(const EngineInputs& inputs, const SparseEntries& entries, const at::Tensor& q,
                  const at::Tensor& k, const at::Tensor& v) {
  auto state = c10::make_intrusive<State>();
  state->pattern = entries.pattern;
  state->softmax = inputs.softmax;
  state->relu = inputs.fused_relu;
  state->epsilon = inputs.epsilon;
  state->scale = inputs.scale;
  state->guard = inputs.guard;
  return MaskAttention::apply(q, k, v, entries.values.to(q.scalar_type()).contiguous(), state);
}

}  // namespace

at::Tensor run_mask_engine(const EngineInputs& inputs, const Mask& mask) {
  const std::vector<SparseEntries> entries = mask.entries();
  if (inputs.q.is_cuda()) return run_mask_engine_cuda(inputs, entries);
  if (entries.size() == 1) return attend(inputs, entries[0], inputs.q, inputs.k, inputs.v);
  std::vector<at::Tensor> heads;
  for (std::size_t h = 0; h < entries.size(); ++h) {
    const auto head = static_cast<std::int64_t>(h);
    const auto slice = [head](const at::Tensor& x) { return x.slice(1, head, head + 1).contiguous(); };
    heads.push_back(attend(inputs, entries[h], slice(inputs.q), slice(inputs.k), slice(inputs.v)));
  }
  return at::cat(heads, 1);
}

}  // namespace topomask
