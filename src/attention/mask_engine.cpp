#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "attention/cpu/row_attention.h"
#include "attention/engines.h"
#include "attention/gpu.h"
#include "masks/sparse_ops.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// q, k, v and a result of this size each leave nothing in the caches of most processors.
constexpr std::int64_t kPastCachesBytes = std::int64_t{4} << 20;

at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// As the CPU's kernels read them: row after row, values in the dtype of q.
struct Operands {
  EngineInputs inputs;
  std::vector<at::Tensor> values;  // [1 or heads, nnz] of each pattern
  const std::vector<SparseEntries>& entries;
  std::int64_t batch, heads, n, keys, m, d_v;  // n queries

  Operands(const EngineInputs& given, const std::vector<SparseEntries>& of) : inputs(given), entries(of) {
    for (at::Tensor* x : {&inputs.q, &inputs.k, &inputs.v}) *x = x->contiguous();
    for (const SparseEntries& own : entries)
      values.push_back(own.values.to(inputs.q.scalar_type()).contiguous());
    batch = inputs.q.size(0);
    heads = inputs.q.size(1);
    n = inputs.q.size(2);
    keys = inputs.k.size(2);
    m = inputs.q.size(3);
    d_v = inputs.v.size(3);
  }
  std::int64_t products() const {
    std::int64_t sum = 0;
    for (const at::Tensor& own : values) sum += own.size(1);
    return batch * (entries.size() == 1 ? heads : 1) * sum;
  }
};

// One (batch entry, head), and where it stands among the tensors involved.
struct Pair {
  std::size_t pattern;
  std::int64_t index;      // of [B, H]
  std::int64_t value_row;  // of the pattern's values
  std::int64_t first_dot;
  bool first_of_values;  // none before it has the same row of values
};

template <class Use>
void for_pairs(const Operands& x, const Use& use) {
  const std::int64_t heads_each = x.entries.size() == 1 ? x.heads : 1;
  std::int64_t first_dot = 0;
  for (std::size_t pattern = 0; pattern < x.entries.size(); ++pattern) {
    const at::Tensor& values = x.values[pattern];
    for (std::int64_t b = 0; b < x.batch; ++b) {
      for (std::int64_t h = 0; h < heads_each; ++h) {
        Pair pair;
        pair.pattern = pattern;
        pair.index = b * x.heads + static_cast<std::int64_t>(pattern) + h;
        pair.value_row = values.size(0) == 1 ? 0 : h;
        pair.first_dot = first_dot;
        pair.first_of_values = b * heads_each + h < values.size(0);
        use(pair);
        first_dot += values.size(1);
      }
    }
  }
}

template <class T>
RowAttention<T> head_of(const Operands& x, const Pair& pair) {
  const at::Tensor& values = x.values[pair.pattern];
  RowAttention<T> head;
  head.mask = rows_of(*x.entries[pair.pattern].pattern);
  head.value = values.const_data_ptr<T>() + pair.value_row * values.size(1);
  head.features = x.m;
  head.value_columns = x.d_v;
  head.q = x.inputs.q.const_data_ptr<T>() + pair.index * x.n * x.m;
  head.k = x.inputs.k.const_data_ptr<T>() + pair.index * x.keys * x.m;
  head.v = x.inputs.v.const_data_ptr<T>() + pair.index * x.keys * x.d_v;
  head.rule = x.inputs.rule.as<T>();
  head.past_caches = static_cast<std::int64_t>(x.inputs.v.nbytes()) >= kPastCachesBytes;
  return head;
}

EngineResult forward_on_cpu(const Operands& x, bool learning) {
  const at::TensorOptions options = x.inputs.v.options();
  const bool softmax = x.inputs.rule.is_softmax();
  at::Tensor out = at::empty({x.batch, x.heads, x.n, x.d_v}, options);
  at::Tensor inverse = at::empty({x.batch, x.heads, x.n}, options);
  at::Tensor row_max = softmax ? at::empty({x.batch, x.heads, x.n}, options) : at::empty({0}, options);
  // One number per nonzero, as many as M has values. Fetching two rows again would cost more.
  at::Tensor dots = at::empty({learning ? x.products() : 0}, options);
  AT_DISPATCH_FLOATING_TYPES(x.inputs.q.scalar_type(), "mask_attention", [&] {
    for_pairs(x, [&](const Pair& pair) {
      row_attention_forward(head_of<scalar_t>(x, pair), out.data_ptr<scalar_t>() + pair.index * x.n * x.d_v,
                            inverse.data_ptr<scalar_t>() + pair.index * x.n,
                            softmax ? row_max.data_ptr<scalar_t>() + pair.index * x.n : nullptr,
                            learning ? dots.data_ptr<scalar_t>() + pair.first_dot : nullptr);
    });
  });
  if (!learning) return {out, {}};
  return {out, {inverse, row_max, dots}};
}

EngineGradients backward_on_cpu(const at::Tensor& given_grad, const Operands& x, const EngineResult& result,
                                bool mask_learns) {
  const at::Tensor grad_out = given_grad.contiguous(), out = result.out.contiguous();
  const at::Tensor &inverse = result.saved[0], &row_max = result.saved[1], &dots = result.saved[2];
  const auto empty_like = [](const at::Tensor& a) { return at::empty(a.sizes(), a.options()); };
  EngineGradients grads = {empty_like(x.inputs.q), empty_like(x.inputs.k), empty_like(x.inputs.v), {}};
  std::int64_t most = 0;
  for (const at::Tensor& values : x.values) {
    grads.mask.push_back(x.batch * x.heads == 0 ? at::zeros(values.sizes(), values.options())
                                                : empty_like(values));
    most = std::max(most, values.size(1));
  }
  const at::Tensor weights = at::empty({most, 2}, x.inputs.q.options());
  AT_DISPATCH_FLOATING_TYPES(x.inputs.q.scalar_type(), "mask_attention_backward", [&] {
    for_pairs(x, [&](const Pair& pair) {
      const std::int64_t row = pair.index * x.n, key_row = pair.index * x.keys,
                         nnz = x.values[pair.pattern].size(1);
      RowAttentionGradients<scalar_t> pass;
      pass.grad_out = grad_out.const_data_ptr<scalar_t>() + row * x.d_v;
      pass.out = out.const_data_ptr<scalar_t>() + row * x.d_v;
      pass.inverse_normaliser = inverse.const_data_ptr<scalar_t>() + row;
      if (x.inputs.rule.is_softmax()) pass.row_max = row_max.const_data_ptr<scalar_t>() + row;
      pass.dot = dots.const_data_ptr<scalar_t>() + pair.first_dot;
      pass.grad_q = grads.q.data_ptr<scalar_t>() + row * x.m;
      pass.grad_k = grads.k.data_ptr<scalar_t>() + key_row * x.m;
      pass.grad_v = grads.v.data_ptr<scalar_t>() + key_row * x.d_v;
      pass.grad_value = grads.mask[pair.pattern].data_ptr<scalar_t>() + pair.value_row * nnz;
      pass.accumulate = !pair.first_of_values;
      pass.weights = reinterpret_cast<ColumnWeights<scalar_t>*>(weights.data_ptr<scalar_t>());
      row_attention_backward(head_of<scalar_t>(x, pair), transposed_rows_of(*x.entries[pair.pattern].pattern),
                             pass);
    });
  });
  if (!mask_learns) grads.mask.clear();
  for (std::size_t i = 0; i < grads.mask.size(); ++i)
    grads.mask[i] = grads.mask[i].to(x.entries[i].values.scalar_type());
  return grads;
}

struct MaskEngineState : torch::CustomClassHolder {
  std::vector<std::shared_ptr<const SparsePattern>> patterns;  // one, or one per head
  ScoreRule rule;
  bool learning = false;

  std::vector<SparseEntries> entries(at::TensorList values) const {
    std::vector<SparseEntries> all;
    for (std::size_t i = 0; i < patterns.size(); ++i) all.push_back({patterns[i], values[i]});
    return all;
  }
};

class MaskAttention : public torch::autograd::Function<MaskAttention> {
 public:
  // values: one tensor per pattern, [1 or heads, nnz].
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, at::TensorList values,
                            const c10::intrusive_ptr<MaskEngineState>& state) {
    const EngineInputs inputs = {q, k, v, state->rule};
    const EngineResult result = mask_engine_forward(inputs, state->entries(values), state->learning);
    if (state->learning) {
      variable_list saved = {q, k, v, result.out};
      saved.insert(saved.end(), result.saved.begin(), result.saved.end());
      saved.insert(saved.end(), values.begin(), values.end());
      context->save_for_backward(saved);
      context->saved_data["state"] = c10::IValue::make_capsule(state);
    }
    return result.out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const auto state =
        c10::static_intrusive_pointer_cast<MaskEngineState>(context->saved_data["state"].toCapsule());
    const std::size_t patterns = state->patterns.size();
    const EngineInputs inputs = {saved[0], saved[1], saved[2], state->rule};
    const EngineResult result = {saved[3], {saved[4], saved[5], saved[6]}};
    bool mask_learns = false;
    for (std::size_t i = 0; i < patterns; ++i) mask_learns = mask_learns || context->needs_input_grad(3 + i);
    const EngineGradients found = mask_engine_backward(
        grads[0], inputs, state->entries(at::TensorList(saved).slice(7)), result, mask_learns);
    variable_list all = {found.q, found.k, found.v};
    all.insert(all.end(), found.mask.begin(), found.mask.end());
    all.resize(3 + patterns + 1);
    return all;
  }
};

}  // namespace

EngineResult mask_engine_forward(const EngineInputs& inputs, const std::vector<SparseEntries>& entries,
                                 bool learning) {
  const at::NoGradGuard no_graph;
  if (inputs.q.is_cuda()) return mask_engine_forward_on_gpu(inputs, entries, learning);
  return forward_on_cpu(Operands(inputs, entries), learning);
}

EngineGradients mask_engine_backward(const at::Tensor& grad_out, const EngineInputs& inputs,
                                     const std::vector<SparseEntries>& entries, const EngineResult& result,
                                     bool mask_learns) {
  const at::NoGradGuard no_graph;
  if (inputs.q.is_cuda()) return mask_engine_backward_on_gpu(grad_out, inputs, entries, result, mask_learns);
  return backward_on_cpu(grad_out, Operands(inputs, entries), result, mask_learns);
}

std::vector<SavedTensor> mask_engine_saved(const AttentionShape& shape, ScoreKind kind,
                                           std::int64_t entries) {
  const at::ScalarType dtype = wide(shape.dtype);
  const std::vector<std::int64_t> rows = {shape.batch, shape.heads, shape.num_nodes}, none = {0};
  return {{rows, dtype}, {kind == ScoreKind::softmax ? rows : none, dtype}, {{shape.batch * entries}, dtype}};
}

at::Tensor run_mask_engine(const EngineInputs& inputs, const Mask& mask) {
  auto state = c10::make_intrusive<MaskEngineState>();
  state->rule = inputs.rule;
  // Copies and conversions are made here, where autograd sees them: the backward pass needs no others.
  // A GPU takes any steps between rows.
  const auto rows = [](const at::Tensor& x) {
    return x.is_cuda() && (x.stride(3) == 1 || x.size(3) == 1) ? x : x.contiguous();
  };
  const at::Tensor q = rows(inputs.q), k = rows(inputs.k), v = rows(inputs.v);
  state->learning = q.requires_grad() || k.requires_grad() || v.requires_grad();
  std::vector<at::Tensor> values;
  for (const SparseEntries& own : mask.entries()) {
    state->patterns.push_back(own.pattern);
    values.push_back(own.values.to(wide(q.scalar_type())).contiguous());
    state->learning = state->learning || values.back().requires_grad();
  }
  state->learning = state->learning && at::GradMode::is_enabled();
  if (!state->learning)
    return mask_engine_forward({q, k, v, state->rule}, state->entries(values), /*learning=*/false).out;
  return MaskAttention::apply(q, k, v, at::TensorList(values), state);
}

}  // namespace topomask
