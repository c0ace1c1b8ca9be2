#include "masks/sparse_ops.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/tensors.h"
#include "masks/cpu/sparse_product.h"
#include "masks/gpu.h"

namespace topomask {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

SparseRows rows_of(const SparsePattern& pattern) {
  const std::int64_t columns = pattern.transposed_ptr.defined() ? pattern.transposed_ptr.size(0) - 1 : -1;
  return {pattern.num_nodes(), pattern.row_ptr.const_data_ptr<std::int64_t>(),
          pattern.col.const_data_ptr<std::int32_t>(), nullptr, columns};
}

SparseRows transposed_rows_of(const SparsePattern& pattern) {
  if (pattern.device().is_cuda()) {
    const TransposedPattern transposed = transpose_of(pattern);  // the pattern keeps it
    return {pattern.num_nodes(), transposed.ptr.const_data_ptr<std::int64_t>(),
            transposed.row.const_data_ptr<std::int32_t>(), transposed.entry.const_data_ptr<std::int64_t>()};
  }
  return {pattern.transposed_ptr.size(0) - 1, pattern.transposed_ptr.const_data_ptr<std::int64_t>(),
          pattern.transposed_row.const_data_ptr<std::int32_t>(),
          pattern.transposed_entry.const_data_ptr<std::int64_t>(), pattern.num_nodes()};
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
  if (x.is_cuda()) return multiply_cuda(pattern, values, x, transposed);
  const std::int64_t heads = x.size(0), n = x.size(1), columns = x.size(2);
  const at::Tensor input = x.contiguous(), weights = values.contiguous();
  const SparseRows matrix = oriented(pattern, transposed);
  at::Tensor out = at::empty({heads, matrix.num_rows, columns}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_matmul", [&] {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t value_head = weights.size(0) == 1 ? 0 : h;
      spmm(matrix, weights.const_data_ptr<scalar_t>() + value_head * weights.size(1),
           input.const_data_ptr<scalar_t>() + h * n * columns, columns, false,
           out.data_ptr<scalar_t>() + h * matrix.num_rows * columns);
    }
  });
  return out;
}

// grad_values[e = (i, j)] = <dy_i, x_j> for y = A x, <dy_j, x_i> for y = A^T x; summed over heads that share
// values.
at::Tensor value_gradient(const SparsePattern& pattern, const at::Tensor& grad_out, const at::Tensor& x,
                          bool transposed, std::int64_t value_heads) {
  if (x.is_cuda()) return value_gradient_cuda(pattern, grad_out, x, transposed, value_heads);
  const std::int64_t heads = x.size(0), rows = grad_out.size(1), n = x.size(1), columns = x.size(2);
  const at::Tensor left = grad_out.contiguous(), right = x.contiguous();
  at::Tensor grad = at::zeros({value_heads, pattern.nnz()}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "sparse_matmul_backward", [&] {
    for (std::int64_t h = 0; h < heads; ++h) {
      sampled_dots(oriented(pattern, transposed), left.const_data_ptr<scalar_t>() + h * rows * columns,
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

// Whether M is formed by expanding columns, from the values that expanded_columns() gives.
bool expands(const ProductPatterns& patterns, const at::Tensor& values) {
  return values.scalar_type() == at::kFloat && patterns.expansions != nullptr &&
         !patterns.expansions->empty();
}

// [heads, column_values_size]
at::Tensor expanded_columns(const ProductPatterns& patterns, const at::Tensor& key) {
  at::Tensor columns = at::empty({key.size(0), column_values_size(*patterns.expansions)}, key.options());
  for (std::int64_t h = 0; h < key.size(0); ++h) {
    column_values(*patterns.expansions, key.const_data_ptr<float>() + h * key.size(1),
                  columns.data_ptr<float>() + h * columns.size(1));
  }
  return columns;
}

// `columns`: of expanded_columns() for this head, or undefined.
template <class T>
void multiply_factors(const ProductPatterns& patterns, const T* query, const T* key,
                      const at::Tensor& columns, T* values) {
  const SparseRows rows = rows_of(*patterns.query), product = rows_of(*patterns.product);
  if constexpr (std::is_same_v<T, float>) {
    if (columns.defined()) {
      expanded_product_values(*patterns.expansions, rows, query, columns.const_data_ptr<float>(), product,
                              values);
      return;
    }
  }
  product_values(rows, query, transposed_rows_of(*patterns.key), key, product, values);
}

// The gradient of the left factor; with that of the right one added where both are one and `columns` are
// there.
template <class T>
void left_gradient(const ProductPatterns& patterns, const T* key, const at::Tensor& columns, bool square,
                   const T* grad, T* grad_query) {
  const SparseRows rows = rows_of(*patterns.query), product = rows_of(*patterns.product);
  if constexpr (std::is_same_v<T, float>) {
    if (columns.defined()) {
      expanded_product_backward(*patterns.expansions, rows, columns.const_data_ptr<float>(), product, square,
                                grad, grad_query);
      return;
    }
  }
  product_backward(rows, transposed_rows_of(*patterns.key), key, product, grad, grad_query);
}

// M = Phi Psi^T. `columns`: of expanded_columns() where the product is formed by them, else undefined.
at::Tensor product_forward(const ProductPatterns& patterns, const at::Tensor& query, const at::Tensor& key,
                           const at::Tensor& columns) {
  if (query.is_cuda()) return product_values_cuda(patterns, query, key);
  at::Tensor values = at::empty({query.size(0), patterns.product->nnz()}, query.options());
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "sparse_product", [&] {
    for (std::int64_t h = 0; h < query.size(0); ++h) {
      const auto* query_head = query.const_data_ptr<scalar_t>() + h * query.size(1);
      auto* out = values.data_ptr<scalar_t>() + h * values.size(1);
      multiply_factors(patterns, query_head, key.const_data_ptr<scalar_t>() + h * key.size(1),
                       columns.defined() ? columns[h] : columns, out);
    }
  });
  return values;
}

// `square`: the key values are the query values.
std::pair<at::Tensor, at::Tensor> product_gradients(const ProductPatterns& patterns, const at::Tensor& query,
                                                    const at::Tensor& key, const at::Tensor& columns,
                                                    const at::Tensor& of_product, bool square) {
  if (query.is_cuda()) return product_backward_cuda(patterns, query, key, of_product, square);
  const at::Tensor grad = of_product.contiguous();
  at::Tensor grad_query = at::empty(query.sizes(), query.options());
  // Where both factors are one, the kernel that expands columns adds up both gradients.
  const bool whole = square && columns.defined();
  at::Tensor grad_key = whole ? at::Tensor() : at::empty(key.sizes(), key.options());
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "sparse_product_backward", [&] {
    for (std::int64_t h = 0; h < query.size(0); ++h) {
      const auto* grad_head = grad.const_data_ptr<scalar_t>() + h * grad.size(1);
      left_gradient(patterns, key.const_data_ptr<scalar_t>() + h * key.size(1),
                    columns.defined() ? columns[h] : columns, square, grad_head,
                    grad_query.data_ptr<scalar_t>() + h * query.size(1));
      if (whole) continue;
      product_backward(rows_of(*patterns.key), transposed_rows_of(*patterns.query),
                       query.const_data_ptr<scalar_t>() + h * query.size(1),
                       transposed_rows_of(*patterns.product), grad_head,
                       grad_key.data_ptr<scalar_t>() + h * key.size(1));
    }
  });
  if (!square) return {grad_query, grad_key};
  return {whole ? grad_query : grad_query.add_(grad_key), at::Tensor()};
}

at::Tensor columns_for(const ProductPatterns& patterns, const at::Tensor& key) {
  return key.is_cpu() && expands(patterns, key) ? expanded_columns(patterns, key) : at::Tensor();
}

class SparseProduct : public torch::autograd::Function<SparseProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& query, const at::Tensor& key,
                            const c10::intrusive_ptr<StateHolder<ProductPatterns>>& holder, bool square) {
    const at::Tensor columns = columns_for(holder->state, key);
    context->saved_data["patterns"] = c10::IValue::make_capsule(holder);
    context->saved_data["square"] = square;
    context->save_for_backward({query, key, columns});
    return product_forward(holder->state, query, key, columns);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<StateHolder<ProductPatterns>>(
        context->saved_data["patterns"].toCapsule());
    const bool square = context->saved_data["square"].toBool();
    const auto [of_query, of_key] =
        product_gradients(holder->state, saved[0], saved[1], saved[2], grads[0], square);
    return {of_query, of_key, at::Tensor(), at::Tensor()};
  }
};

bool is_square(const ProductPatterns& patterns, const at::Tensor& query_values,
               const at::Tensor& key_values) {
  return patterns.query == patterns.key && query_values.is_same(key_values);
}

}  // namespace

at::Tensor sparse_matmul(const std::shared_ptr<const SparsePattern>& pattern, const at::Tensor& values,
                         const at::Tensor& x, bool transposed) {
  check(x.device() == pattern->device() && values.device() == pattern->device(),
        "sparse_matmul: values and x must be on {} as the pattern, got {} and {}", pattern->device().str(),
        describe(values), describe(x));
  return SparseMatmul::apply(values, x, c10::make_intrusive<StateHolder<PatternPtr>>(pattern), transposed);
}

ProductPatterns make_product_patterns(std::shared_ptr<const SparsePattern> query,
                                      std::shared_ptr<const SparsePattern> key) {
  if (query->row_ptr.is_cuda()) return make_product_patterns_cuda(std::move(query), std::move(key));
  ProductPattern product = product_pattern(rows_of(*query), transposed_rows_of(*key));
  auto pattern = std::make_shared<SparsePattern>(SparsePattern::from_rows(
      take_vector(std::move(product.row_ptr)), take_vector(std::move(product.col)), key->num_nodes()));
  const SparseRows columns = transposed_rows_of(*pattern);
  auto expansions = std::make_shared<const Expansions>(make_expansions(
      rows_of(*query), transposed_rows_of(*key), rows_of(*pattern), query == key ? &columns : nullptr));
  return {std::move(query), std::move(key), std::move(pattern), std::move(expansions), nullptr};
}

std::shared_ptr<ProductOnDevice> describe_product_on_device(const ProductPatterns& patterns) {
  return describe_product_cuda(patterns);
}

at::Tensor sparse_product(const ProductPatterns& patterns, const at::Tensor& query_values,
                          const at::Tensor& key_values) {
  const bool square = is_square(patterns, query_values, key_values);
  const at::Tensor query = query_values.contiguous(), key = square ? query : key_values.contiguous();
  if (!at::GradMode::is_enabled() || !(query.requires_grad() || key.requires_grad()))
    return product_forward(patterns, query, key, columns_for(patterns, key));
  return SparseProduct::apply(query, key, c10::make_intrusive<StateHolder<ProductPatterns>>(patterns),
                              square);
}

std::pair<at::Tensor, at::Tensor> sparse_product_gradients(const ProductPatterns& patterns,
                                                           const at::Tensor& query_values,
                                                           const at::Tensor& key_values,
                                                           const at::Tensor& of_product) {
  const at::NoGradGuard no_graph;
  const bool square = is_square(patterns, query_values, key_values);
  const at::Tensor query = query_values.contiguous(), key = square ? query : key_values.contiguous();
  return product_gradients(patterns, query, key, columns_for(patterns, key), of_product, square);
}

}  // namespace topomask
