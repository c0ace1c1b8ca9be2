// Masked attention written out over the entries of a sparse mask, in plain differentiable operations: what is
// not in the mask is not touched, whatever it holds.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

#include "topomask/attention.h"
#include "topomask/mask.h"

namespace topomask::oracle {

using Tensors = std::vector<at::Tensor>;

// operands: q, k [B, H, N, d], v [B, H, N, d_v], values [1 or H, nnz]. Softmax scores are exponentials as
// they are, not shifted by their maximum.
inline at::Tensor entry_attention(const Tensors& operands, const SparsePattern& pattern,
                                  const AttentionOptions& options) {
  const bool softmax = options.kind == AttentionKind::softmax;
  const at::Tensor q = softmax ? operands[0] : options.feature_map(operands[0], true);
  const at::Tensor k = softmax ? operands[1] : options.feature_map(operands[1], false);
  const at::Tensor &v = operands[2], &values = operands[3];
  const at::Tensor row = at::repeat_interleave(pattern.row_ptr.diff()), col = pattern.col.to(at::kLong);
  at::Tensor score = (q.index_select(2, row) * k.index_select(2, col)).sum(-1);  // [B, H, nnz]
  if (softmax) score = (score / std::sqrt(static_cast<double>(q.size(-1)))).exp();
  const at::Tensor weight = (score * values).unsqueeze(-1);
  const auto sum_rows = [&](const at::Tensor& x) {
    return at::zeros({x.size(0), x.size(1), q.size(2), x.size(3)}, x.options()).index_add(2, row, x);
  };
  const at::Tensor normaliser = sum_rows(weight);
  const at::Tensor guarded = normaliser.abs() <= options.normaliser_guard;
  return (sum_rows(weight * v.index_select(2, col)) / normaliser.masked_fill(guarded, 1))
      .masked_fill(guarded, 0);
}

// The result of attend(leaves), then the gradients of <direction, result>; leaves start at the operands, and
// the direction, numbers up to `size`, is the same for every dtype and device.
template <class Attend>
Tensors with_gradients(const Tensors& operands, const Attend& attend, double size = 1) {
  Tensors leaves;
  for (const at::Tensor& x : operands) leaves.push_back(x.detach().clone().requires_grad_());
  const at::Tensor out = attend(leaves);
  const at::Tensor direction =
      size * (at::arange(out.numel(), at::kDouble) * 0.7 + 0.2).sin().view(out.sizes());
  Tensors all = torch::autograd::grad({out}, leaves, {direction.to(out)});
  all.insert(all.begin(), out.detach());
  return all;
}

}  // namespace topomask::oracle
