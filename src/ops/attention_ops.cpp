// The fused pass over the nonzeros of a mask, forward and backward, as operators.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "attention/cpu/row_attention.h"
#include "attention/engines.h"
#include "ops/arguments.h"

namespace topomask::ops {
namespace {

struct Operands {
  Operands(const char* op, const at::Tensor& q_, const at::Tensor& k_, const at::Tensor& v_,
           const at::Tensor& values_, at::TensorList pattern_, bool softmax_, double scale_, double guard_)
      : pattern(op, "pattern", pattern_), softmax(softmax_), scale(scale_), guard(guard_) {
    n = pattern.num_nodes();
    q = real_argument(op, "q", q_, {-1, -1, n, -1});
    m = q.size(3);
    pairs = q.size(0) * q.size(1);
    k = real_argument(op, "k", k_, q.sizes());
    v = real_argument(op, "v", v_, {q.size(0), q.size(1), n, -1});
    d_v = v.size(3);
    values = real_argument(op, "values", values_, {-1, pattern.nnz()});
    check(values.size(0) == 1 || values.size(0) == q.size(1), "{}: values has {} heads, q has {}", op,
          values.size(0), q.size(1));
    for (const at::Tensor& other : {k, v, values}) {
      check(other.scalar_type() == q.scalar_type(),
            "{}: q, k, v and values must have one dtype, got {} and {}", op, c10::toString(q.scalar_type()),
            c10::toString(other.scalar_type()));
    }
  }

  std::int64_t value_row(std::int64_t pair) const { return values.size(0) == 1 ? 0 : pair % q.size(1); }

  template <class T>
  RowAttention<T> head(std::int64_t pair) const {
    RowAttention<T> one;
    one.mask = pattern.rows();
    one.value = values.const_data_ptr<T>() + value_row(pair) * pattern.nnz();
    one.features = m;
    one.value_columns = d_v;
    one.q = q.const_data_ptr<T>() + pair * n * m;
    one.k = k.const_data_ptr<T>() + pair * n * m;
    one.v = v.const_data_ptr<T>() + pair * n * d_v;
    one.softmax = softmax;
    one.scale = static_cast<T>(scale);
    one.guard = static_cast<T>(guard);
    return one;
  }

  PatternArgument pattern;
  bool softmax;
  double scale, guard;
  at::Tensor q, k, v, values;
  std::int64_t n = 0, m = 0, d_v = 0, pairs = 0;
};

using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

FourTensors mask_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& values, at::TensorList pattern, bool softmax, double scale,
                           double guard, bool keep_dots) {
  const Operands a("mask_attention", q, k, v, values, pattern, softmax, scale, guard);
  const std::int64_t nnz = a.pattern.nnz();
  at::Tensor out = at::empty(a.v.sizes(), a.v.options());
  at::Tensor inverse = at::empty({a.q.size(0), a.q.size(1), a.n}, a.v.options());
  at::Tensor row_max = at::empty({a.q.size(0), a.q.size(1), softmax ? a.n : 0}, a.v.options());
  at::Tensor dots = at::empty({a.q.size(0), a.q.size(1), keep_dots ? nnz : 0}, a.v.options());
  AT_DISPATCH_FLOATING_TYPES(a.q.scalar_type(), "mask_attention", [&] {
    for (std::int64_t i = 0; i < a.pairs; ++i) {
      row_attention_forward(a.head<scalar_t>(i), out.data_ptr<scalar_t>() + i * a.n * a.d_v,
                            inverse.data_ptr<scalar_t>() + i * a.n,
                            softmax ? row_max.data_ptr<scalar_t>() + i * a.n : nullptr,
                            keep_dots ? dots.data_ptr<scalar_t>() + i * nnz : nullptr);
    }
  });
  return {out, inverse, row_max, dots};
}

FourTensors mask_attention_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v, const at::Tensor& values, const at::Tensor& out,
                                    const at::Tensor& inverse, const at::Tensor& row_max,
                                    const at::Tensor& dots, at::TensorList pattern, bool softmax,
                                    double scale, double guard) {
  constexpr const char* kOp = "mask_attention_backward";
  const Operands a(kOp, q, k, v, values, pattern, softmax, scale, guard);
  const at::Tensor g = real_argument(kOp, "grad", grad, a.v.sizes());
  const at::Tensor result = real_argument(kOp, "out", out, a.v.sizes());
  const at::Tensor inverses = real_argument(kOp, "inverse", inverse, {a.q.size(0), a.q.size(1), a.n});
  const at::Tensor maxima =
      real_argument(kOp, "row_max", row_max, {a.q.size(0), a.q.size(1), softmax ? a.n : 0});
  const at::Tensor products = real_argument(kOp, "dots", dots, {a.q.size(0), a.q.size(1), a.pattern.nnz()});
  for (const at::Tensor& other : {g, result, inverses, maxima, products}) {
    check(other.scalar_type() == a.q.scalar_type(), "{}: everything must have the dtype of q, got {} and {}",
          kOp, c10::toString(a.q.scalar_type()), c10::toString(other.scalar_type()));
  }
  const std::int64_t nnz = a.pattern.nnz();
  at::Tensor grad_q = at::empty(a.q.sizes(), a.q.options()), grad_k = at::empty(a.k.sizes(), a.k.options());
  at::Tensor grad_v = at::empty(a.v.sizes(), a.v.options());
  at::Tensor grad_values = at::zeros(a.values.sizes(), a.values.options());
  at::Tensor column_weights = at::empty({nnz, 2}, a.q.options());
  AT_DISPATCH_FLOATING_TYPES(a.q.scalar_type(), kOp, [&] {
    for (std::int64_t i = 0; i < a.pairs; ++i) {
      const RowAttention<scalar_t> head = a.head<scalar_t>(i);
      auto* weights = reinterpret_cast<ColumnWeights<scalar_t>*>(column_weights.data_ptr<scalar_t>());
      const scalar_t* g_head = g.const_data_ptr<scalar_t>() + i * a.n * a.d_v;
      row_attention_backward(head, g_head, result.const_data_ptr<scalar_t>() + i * a.n * a.d_v,
                             inverses.const_data_ptr<scalar_t>() + i * a.n,
                             softmax ? maxima.const_data_ptr<scalar_t>() + i * a.n : nullptr,
                             products.const_data_ptr<scalar_t>() + i * nnz,
                             grad_q.data_ptr<scalar_t>() + i * a.n * a.m,
                             grad_values.data_ptr<scalar_t>() + a.value_row(i) * nnz, true, weights);
      column_attention_backward<scalar_t>(head, a.pattern.transposed(), g_head, weights,
                                          grad_k.data_ptr<scalar_t>() + i * a.n * a.m,
                                          grad_v.data_ptr<scalar_t>() + i * a.n * a.d_v);
    }
  });
  return {grad_q, grad_k, grad_v, grad_values};
}

at::Tensor favor_projection_op(std::int64_t num_features, std::int64_t d, std::int64_t seed) {
  check(num_features >= 1, "FeatureMap: favor needs at least one feature, got {}", num_features);
  check(d >= 1, "FeatureMap: favor needs at least one channel, got {}", d);
  return favor_projection(num_features, d, static_cast<std::uint64_t>(seed));
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CPU, m) {
  m.impl("mask_attention", mask_attention);
  m.impl("mask_attention_backward", mask_attention_backward);
}

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("favor_projection", favor_projection_op);
}

}  // namespace topomask::ops
