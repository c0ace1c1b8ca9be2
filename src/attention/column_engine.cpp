// The feature engine by columns: where it runs, and its passes on the CPU. Those of the gradients are listed
// in column_engine_cuda.cpp.
#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "attention/cpu/column_attention.h"
#include "attention/engines.h"
#include "attention/gpu.h"
#include "masks/sparse_ops.h"

namespace topomask {

namespace {

// A factor of one head's mask, as the kernel reads it.
struct FactorOperand {
  const SparsePattern* pattern = nullptr;
  at::Tensor values;    // [1 or heads, nnz], dtype of q
  at::Tensor position;  // [nnz] int64: where each entry stands column by column
};

FactorOperand factor_operand(const SparseEntries& entries, at::ScalarType dtype) {
  FactorOperand factor{entries.pattern.get(), entries.values.to(dtype).contiguous(), {}};
  const at::Tensor& column_order = entries.pattern->transposed_entry;
  factor.position = at::empty_like(column_order);
  factor.position.index_put_({column_order}, at::arange(column_order.size(0), column_order.options()));
  return factor;
}

// x, y, z, out, along: [B, H, N, columns]; the rest [B, H, N]; all contiguous, dtype of q.
struct CpuPass {
  const FactorOperand *rows = nullptr, *keys = nullptr;
  at::Tensor x = {}, y = {}, z = {}, out = {};
  at::Tensor ones = {}, key_scale = {}, x_extra = {}, y_extra = {}, along = {};
  at::Tensor value_gradient = {};  // [values of `rows`]; set to zero by the caller, added to
  std::int64_t head = -1;          // the one head that this mask serves; -1: all
};

template <class T>
T* pair_data(const at::Tensor& x, std::int64_t pair, std::int64_t columns) {
  return x.defined() ? x.data_ptr<T>() + pair * x.size(2) * columns : nullptr;
}

void run_pass(const CpuPass& pass) {
  const std::int64_t batch = pass.x.size(0), heads = pass.x.size(1), m = pass.x.size(3), d_v = pass.z.size(3);
  const at::Tensor own_gradient =
      pass.value_gradient.defined() ? at::empty({pass.rows->values.size(1)}, pass.x.options()) : at::Tensor();
  AT_DISPATCH_FLOATING_TYPES(pass.x.scalar_type(), "column_attention", [&] {
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        if (pass.head >= 0 && h != pass.head) continue;
        const std::int64_t pair = b * heads + h;
        const auto value_row = [&](const at::Tensor& values) {
          return values.size(0) == 1 ? std::int64_t{0} : h;
        };
        const auto values_of = [&](const FactorOperand& factor) {
          return factor.values.const_data_ptr<scalar_t>() + value_row(factor.values) * factor.values.size(1);
        };
        ColumnAttention<scalar_t> kernel;
        kernel.rows = rows_of(*pass.rows->pattern);
        kernel.row_columns = transposed_rows_of(*pass.rows->pattern);
        kernel.key_columns = transposed_rows_of(*pass.keys->pattern);
        kernel.position = pass.rows->position.const_data_ptr<std::int64_t>();
        kernel.row_value = values_of(*pass.rows);
        kernel.key_value = values_of(*pass.keys);
        kernel.key_scale = pair_data<scalar_t>(pass.key_scale, pair, 1);
        kernel.features = m;
        kernel.value_columns = d_v;
        kernel.x = pair_data<scalar_t>(pass.x, pair, m);
        kernel.y = pair_data<scalar_t>(pass.y, pair, m);
        kernel.z = pair_data<scalar_t>(pass.z, pair, d_v);
        kernel.x_extra = pair_data<scalar_t>(pass.x_extra, pair, 1);
        kernel.y_extra = pair_data<scalar_t>(pass.y_extra, pair, 1);
        ColumnResult<scalar_t> result;
        result.out = pair_data<scalar_t>(pass.out, pair, d_v);
        result.ones = pair_data<scalar_t>(pass.ones, pair, 1);
        if (own_gradient.defined()) {
          result.along = pair_data<scalar_t>(pass.along, pair, d_v);
          result.value_gradient = own_gradient.data_ptr<scalar_t>();
        }
        column_attention(kernel, result);
        if (own_gradient.defined()) pass.value_gradient[value_row(pass.value_gradient)].add_(own_gradient);
      }
    }
  });
}

// q and k as features, and everything row after row.
struct CpuOperands {
  at::Tensor q, k, v;
  explicit CpuOperands(const EngineInputs& inputs) : v(inputs.v.contiguous()) {
    const auto features = [&](const at::Tensor& x) {
      return (inputs.rule.is_relu() ? x.relu() + inputs.rule.epsilon : x).contiguous();
    };
    q = features(inputs.q);
    k = features(inputs.k);
  }
};

// use(factors of a mask, the head it serves or -1).
template <class Use>
void for_cpu_masks(const std::vector<SparseFactors>& factors, const Use& use) {
  for (std::size_t which = 0; which < factors.size(); ++which)
    use(factors[which], factors.size() == 1 ? -1 : static_cast<std::int64_t>(which));
}

EngineResult forward_on_cpu(const EngineInputs& inputs, const std::vector<SparseFactors>& factors) {
  const CpuOperands x(inputs);
  const at::Tensor sums = at::empty(x.v.sizes(), x.v.options());
  const at::Tensor normaliser = at::empty(x.q.sizes().slice(0, 3), x.q.options());
  for_cpu_masks(factors, [&](const SparseFactors& own, std::int64_t head) {
    const FactorOperand phi = factor_operand(own.left, x.q.scalar_type()),
                        psi = factor_operand(own.right, x.q.scalar_type());
    CpuPass pass{&phi, &psi, x.q, x.k, x.v, sums};
    pass.ones = normaliser;
    pass.head = head;
    run_pass(pass);
  });
  const at::Tensor guarded = normaliser.abs() <= inputs.rule.guard;
  const at::Tensor inverse = normaliser.masked_fill(guarded, 1).reciprocal().masked_fill(guarded, 0);
  return {sums.mul_(inverse.unsqueeze(-1)), {inverse}};
}

EngineGradients backward_on_cpu(const at::Tensor& given_grad, const EngineInputs& inputs,
                                const std::vector<SparseFactors>& factors, const EngineResult& result,
                                bool mask_learns) {
  const CpuOperands x(inputs);
  const at::Tensor grad = given_grad.contiguous(), inverse = result.saved[0].contiguous();
  const at::Tensor scaled = grad * inverse.unsqueeze(-1);
  const at::Tensor edge = (scaled * result.out).sum(-1).neg();
  const auto empty_like = [](const at::Tensor& a) { return at::empty(a.sizes(), a.options()); };
  EngineGradients gradients = {empty_like(x.q), empty_like(x.k), empty_like(x.v), {}};
  for_cpu_masks(factors, [&](const SparseFactors& own, std::int64_t head) {
    const FactorOperand phi = factor_operand(own.left, x.q.scalar_type()),
                        psi = factor_operand(own.right, x.q.scalar_type());
    CpuPass of_q{&phi, &psi, scaled, x.v, x.k, gradients.q};
    of_q.x_extra = edge;
    CpuPass of_k{&psi, &phi, x.v, scaled, x.q, gradients.k};
    of_k.y_extra = edge;
    CpuPass of_v{&psi, &phi, x.k, x.q, scaled, gradients.v};
    if (mask_learns) {
      of_q.along = x.q;
      of_q.value_gradient = at::zeros(phi.values.sizes(), x.q.options());
      of_k.along = x.k;
      of_k.value_gradient = at::zeros(psi.values.sizes(), x.q.options());
    }
    for (CpuPass* pass : {&of_q, &of_k, &of_v}) {
      pass->head = head;
      run_pass(*pass);
    }
    if (mask_learns) {
      gradients.mask.push_back(of_q.value_gradient.to(own.left.values.scalar_type()));
      gradients.mask.push_back(of_k.value_gradient.to(own.right.values.scalar_type()));
    }
  });
  if (inputs.rule.is_relu()) {  // the derivative of clamp_min, as in the other engines
    gradients.q.masked_fill_((inputs.q >= 0).logical_not(), 0);
    gradients.k.masked_fill_((inputs.k >= 0).logical_not(), 0);
  }
  return gradients;
}

}  // namespace

bool has_column_engine(const EngineInputs& inputs, const std::vector<SparseFactors>& factors) {
  // Without a mask, two matrix products suffice on a CPU.
  return inputs.q.is_cuda() ? has_column_engine_on_gpu(inputs, factors) : !factors.empty();
}

EngineResult column_engine_forward(const EngineInputs& inputs, const std::vector<SparseFactors>& factors) {
  return inputs.q.is_cuda() ? column_engine_forward_on_gpu(inputs, factors) : forward_on_cpu(inputs, factors);
}

EngineGradients column_engine_backward(const at::Tensor& grad_out, const EngineInputs& inputs,
                                       const std::vector<SparseFactors>& factors, const EngineResult& result,
                                       bool mask_learns) {
  return inputs.q.is_cuda() ? column_engine_backward_on_gpu(grad_out, inputs, factors, result, mask_learns)
                            : backward_on_cpu(grad_out, inputs, factors, result, mask_learns);
}

}  // namespace topomask
