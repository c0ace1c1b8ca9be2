#include "masks/sparse_ops.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "masks/cpu/sparse_product.h"
#ifdef TOPOMASK_CUDA
#include "masks/sparse_product_cuda.h"
#endif

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

SparseRows rows_of(const SparsePattern& pattern) {
  return {pattern.num_nodes(), pattern.row_ptr.const_data_ptr<std::int64_t>(),
          pattern.col.const_data_ptr<std::int32_t>(), nullptr};
}

SparseRows transposed_rows_of(const SparsePattern& pattern) {
  return {pattern.num_nodes(), pattern.transposed_ptr.const_data_ptr<std::int64_t>(),
          pattern.transposed_row.const_data_ptr<std::int32_t>(),
          pattern.transposed_entry.const_data_ptr<std::int64_t>()};
}

namespace {

// Carries a shared pattern through the autograd context, which only stores IValues and tensors.
template <class State>
struct StateHolder : torch::CustomClassHolder {
  explicit StateHolder(State s) : state(std::move(s)) {}
  State state;
};

SparseRows oriented(const SparsePattern& pattern, bool transposed) {
  return transposed ? transposed_rows_of(pattern) : rows_of(pattern);
}

at::Tensor multiply(const SparsePattern& pattern, const at::Tensor& values, const at::Tensor& x,
                    bool transposed) {
  const std::int64_t heads = x.size(0), n = x.size(1), columns = x.size(2);
  const at::Tensor input = x.contiguous(), weights = values.contiguous();
  at::Tensor out = at::empty({heads, n, columns}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_matmul", [&] {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t value_head = weights.size(0) == 1 ? 0 : h;
      spmm(oriented(pattern, transposed), weights.const_data_ptr<scalar_t>() + value_head * weights.size(1),
           input.const_data_ptr<scalar_t>() + h * n * columns, columns, false,
           out.data_ptr<scalar_t>() + h * n * columns);
    }
  });
  return out;
}

// grad_values[e = (i, j)] = <dy_i, x_j> for y = A x, <dy_j, x_i> for y = A^T x; summed over heads that share
// values.
at::Tensor value_gradient(const SparsePattern& pattern, const at::Tensor& grad_out, const at::Tensor& x,
                          bool transposed, std::int64_t value_heads) {
  const std::int64_t heads = x.size(0), n = x.size(1), columns = x.size(2);
  const at::Tensor left = grad_out.contiguous(), right = x.contiguous();
  at::Tensor grad = at::zeros({value_heads, pattern.nnz()}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_matmul_backward", [&] {
    for (std::int64_t h = 0; h < heads; ++h) {
      sampled_dots(oriented(pattern, transposed), left.const_data_ptr<scalar_t>() + h * n * columns,
                   right.const_data_ptr<scalar_t>() + h * n * columns, columns,
                   grad.data_ptr<scalar_t>() + (value_heads == 1 ? 0 : h) * pattern.nnz());
    }
  });
  return grad;
}

using PatternPtr = std::shared_ptr<const SparsePattern>;

class SparseMatmul : public torch::autograd::Function<SparseMatmul> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values, const at::Tensor& x,
                            const c10::intrusive_ptr<StateHolder<PatternPtr>>& holder, bool transposed) {
    context->save_for_backward({values, x});
    context->saved_data["pattern"] = c10::IValue::make_capsule(holder);
    context->saved_data["transposed"] = transposed;
    return multiply(*holder->state, values, x, transposed);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<StateHolder<PatternPtr>>(
        context->saved_data["pattern"].toCapsule());
    const bool transposed = context->saved_data["transposed"].toBool();
    at::Tensor grad_values, grad_x;
    if (context->needs_input_grad(0)) {
      grad_values = value_gradient(*holder->state, grads[0], saved[1], transposed, saved[0].size(0));
    }
    if (context->needs_input_grad(1)) grad_x = multiply(*holder->state, saved[0], grads[0], !transposed);
    return {grad_values, grad_x, at::Tensor(), at::Tensor()};
  }
};

class SparseProduct : public torch::autograd::Function<SparseProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query_values,
                            const at::Tensor& key_values,
                            const c10::intrusive_ptr<StateHolder<ProductPatterns>>& holder) {
    context->save_for_backward({query_values, key_values});
    context->saved_data["patterns"] = c10::IValue::make_capsule(holder);
    const ProductPatterns& patterns = holder->state;
#ifdef TOPOMASK_CUDA
    context->saved_data["shared"] = patterns.query == patterns.key && query_values.is_same(key_values);
    if (query_values.is_cuda()) return product_values_cuda(patterns, query_values, key_values);
#endif
    const at::Tensor query = query_values.contiguous(), key = key_values.contiguous();
    const std::int64_t heads = query.size(0);
    at::Tensor values = at::empty({heads, patterns.product->nnz()}, query.options());
    AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "sparse_product", [&] {
      for (std::int64_t h = 0; h < heads; ++h) {
        product_values(rows_of(*patterns.query), query.const_data_ptr<scalar_t>() + h * query.size(1),
                       transposed_rows_of(*patterns.key), key.const_data_ptr<scalar_t>() + h * key.size(1),
                       rows_of(*patterns.product), values.data_ptr<scalar_t>() + h * values.size(1));
      }
    });
    return values;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<StateHolder<ProductPatterns>>(
        context->saved_data["patterns"].toCapsule());
    const ProductPatterns& patterns = holder->state;
#ifdef TOPOMASK_CUDA
    if (saved[0].is_cuda()) {
      const bool shared = context->saved_data["shared"].toBool();
      const auto [of_query, of_key] = product_backward_cuda(patterns, saved[0], saved[1], grads[0], shared);
      return {of_query, of_key, at::Tensor()};
    }
#endif
    const at::Tensor query = saved[0].contiguous(), key = saved[1].contiguous(), grad = grads[0].contiguous();
    at::Tensor grad_query = at::empty(query.sizes(), query.options());
    at::Tensor grad_key = at::empty(key.sizes(), key.options());
    AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "sparse_product_backward", [&] {
      for (std::int64_t h = 0; h < query.size(0); ++h) {
        const scalar_t* grad_head = grad.const_data_ptr<scalar_t>() + h * grad.size(1);
        product_backward(rows_of(*patterns.query), transposed_rows_of(*patterns.key),
                         key.const_data_ptr<scalar_t>() + h * key.size(1), rows_of(*patterns.product),
                         grad_head, grad_query.data_ptr<scalar_t>() + h * query.size(1));
        product_backward(rows_of(*patterns.key), transposed_rows_of(*patterns.query),
                         query.const_data_ptr<scalar_t>() + h * query.size(1),
                         transposed_rows_of(*patterns.product), grad_head,
                         grad_key.data_ptr<scalar_t>() + h * key.size(1));
      }
    });
    return {grad_query, grad_key, at::Tensor()};
  }
};

template <class T>
at::Tensor adopt(std::vector<T> data, at::ScalarType dtype) {
  auto* owned = new std::vector<T>(std::move(data));
  return at::from_blob(
      owned->data(), {static_cast<std::int64_t>(owned->size())}, [owned](void*) { delete owned; },
      at::TensorOptions(dtype));
}

}  // namespace

at::Tensor sparse_matmul(const std::shared_ptr<const SparsePattern>& pattern, const at::Tensor& values,
                         const at::Tensor& x, bool transposed) {
  return SparseMatmul::apply(values, x, c10::make_intrusive<StateHolder<PatternPtr>>(pattern), transposed);
}

ProductPatterns make_product_patterns(std::shared_ptr<const SparsePattern> query,
                                      std::shared_ptr<const SparsePattern> key) {
#ifdef TOPOMASK_CUDA
  if (query->row_ptr.is_cuda()) return make_product_patterns_cuda(std::move(query), std::move(key));
#endif
  ProductPattern product = product_pattern(rows_of(*query), transposed_rows_of(*key));
  auto pattern = std::make_shared<SparsePattern>(SparsePattern::from_rows(
      adopt(std::move(product.row_ptr), at::kLong), adopt(std::move(product.col), at::kInt)));
  return {std::move(query), std::move(key), std::move(pattern), nullptr};
}

at::Tensor sparse_product(const ProductPatterns& patterns, const at::Tensor& query_values,
                          const at::Tensor& key_values) {
  return SparseProduct::apply(query_values, key_values,
                              c10::make_intrusive<StateHolder<ProductPatterns>>(patterns));
}

}  // namespace topomask
