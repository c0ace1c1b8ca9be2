#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "masks/cpu/sparse_product.h"
#include "ops/arguments.h"
#include "topomask/mask.h"

namespace topomask::ops {
namespace {

template <class T>
at::Tensor tensor_of(const std::vector<T>& values, at::ScalarType dtype) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, dtype);
  std::copy(values.begin(), values.end(), tensor.data_ptr<T>());
  return tensor;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> transpose_pattern_op(const at::Tensor& row_ptr,
                                                                    const at::Tensor& col) {
  const SparsePattern pattern = SparsePattern::from_rows(row_ptr, col);
  return {pattern.transposed_ptr, pattern.transposed_row, pattern.transposed_entry};
}

std::tuple<at::Tensor, at::Tensor> product_pattern_op(at::TensorList query, at::TensorList key) {
  const PatternArgument left("product_pattern", "query", query), right("product_pattern", "key", key);
  check(left.num_nodes() == right.num_nodes(), "product_pattern: query has {} rows, key has {}",
        left.num_nodes(), right.num_nodes());
  const ProductPattern product = product_pattern(left.rows(), right.transposed());
  return {tensor_of(product.row_ptr, at::kLong), tensor_of(product.col, at::kInt)};
}

at::Tensor estimate_product_nnz_op(at::TensorList query, at::TensorList key, std::int64_t sample) {
  const PatternArgument left("estimate_product_nnz", "query", query),
      right("estimate_product_nnz", "key", key);
  check(left.num_nodes() == right.num_nodes() && sample >= 1,
        "estimate_product_nnz: expected patterns of one size and at least one row, got {} and {} nodes, {} "
        "rows",
        left.num_nodes(), right.num_nodes(), sample);
  return at::scalar_tensor(estimate_product_nnz(left.rows(), right.transposed(), sample), at::kDouble);
}

void check_values(const char* op, const char* argument, const at::Tensor& values, const at::Tensor& other) {
  check(values.scalar_type() == other.scalar_type(),
        "{}: {} must have one dtype with the rest, got {} and {}", op, argument,
        c10::toString(values.scalar_type()), c10::toString(other.scalar_type()));
}

at::Tensor sparse_matmul_op(const at::Tensor& values, const at::Tensor& x, at::TensorList pattern,
                            bool transposed) {
  const PatternArgument matrix("sparse_matmul", "pattern", pattern);
  const at::Tensor input = real_argument("sparse_matmul", "x", x, {-1, matrix.num_nodes(), -1});
  const at::Tensor weights = real_argument("sparse_matmul", "values", values, {-1, matrix.nnz()});
  const std::int64_t heads = input.size(0), columns = input.size(2), stride = input.size(1) * columns;
  check(weights.size(0) == 1 || weights.size(0) == heads, "sparse_matmul: values has {} heads, x has {}",
        weights.size(0), heads);
  check_values("sparse_matmul", "values", weights, input);
  at::Tensor out = at::empty(input.sizes(), input.options());
  const SparseRows rows = transposed ? matrix.transposed() : matrix.rows();
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "sparse_matmul", [&] {
    for (std::int64_t h = 0; h < heads; ++h) {
      spmm(rows, weights.const_data_ptr<scalar_t>() + (weights.size(0) == 1 ? 0 : h) * matrix.nnz(),
           input.const_data_ptr<scalar_t>() + h * stride, columns, false,
           out.data_ptr<scalar_t>() + h * stride);
    }
  });
  return out;
}

// out[h, e = (i, j)] = <left_i, right_j>, or <left_j, right_i> where transposed; summed over the heads of
// left and right where `heads` is 1.
at::Tensor sampled_dots_op(const at::Tensor& left, const at::Tensor& right, at::TensorList pattern,
                           bool transposed, std::int64_t heads) {
  const PatternArgument matrix("sampled_dots", "pattern", pattern);
  const at::Tensor a = real_argument("sampled_dots", "left", left, {-1, matrix.num_nodes(), -1});
  const at::Tensor b =
      real_argument("sampled_dots", "right", right, {a.size(0), matrix.num_nodes(), a.size(2)});
  check(heads == 1 || heads == a.size(0), "sampled_dots: heads must be 1 or {}, got {}", a.size(0), heads);
  check_values("sampled_dots", "right", b, a);
  const std::int64_t columns = a.size(2), stride = a.size(1) * columns;
  at::Tensor out = at::zeros({heads, matrix.nnz()}, a.options());
  const SparseRows rows = transposed ? matrix.transposed() : matrix.rows();
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "sampled_dots", [&] {
    for (std::int64_t h = 0; h < a.size(0); ++h) {
      sampled_dots(rows, a.const_data_ptr<scalar_t>() + h * stride, b.const_data_ptr<scalar_t>() + h * stride,
                   columns, out.data_ptr<scalar_t>() + (heads == 1 ? 0 : h) * matrix.nnz());
    }
  });
  return out;
}

struct ProductArguments {
  ProductArguments(const char* op, const at::Tensor& query_values_, const at::Tensor& key_values_,
                   at::TensorList query_, at::TensorList key_, at::TensorList product_)
      : query(op, "query", query_), key(op, "key", key_), product(op, "product", product_) {
    check(query.num_nodes() == key.num_nodes() && query.num_nodes() == product.num_nodes(),
          "{}: query, key and product must be of one size, got {}, {} and {} nodes", op, query.num_nodes(),
          key.num_nodes(), product.num_nodes());
    query_values = real_argument(op, "query_values", query_values_, {-1, query.nnz()});
    key_values = real_argument(op, "key_values", key_values_, {query_values.size(0), key.nnz()});
    check_values(op, "key_values", key_values, query_values);
  }

  PatternArgument query, key, product;
  at::Tensor query_values, key_values;
};

at::Tensor sparse_product_op(const at::Tensor& query_values, const at::Tensor& key_values,
                             at::TensorList query, at::TensorList key, at::TensorList product) {
  const ProductArguments a("sparse_product", query_values, key_values, query, key, product);
  at::Tensor out = at::empty({a.query_values.size(0), a.product.nnz()}, a.query_values.options());
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "sparse_product", [&] {
    for (std::int64_t h = 0; h < out.size(0); ++h) {
      product_values(a.query.rows(), a.query_values.const_data_ptr<scalar_t>() + h * a.query.nnz(),
                     a.key.transposed(), a.key_values.const_data_ptr<scalar_t>() + h * a.key.nnz(),
                     a.product.rows(), out.data_ptr<scalar_t>() + h * a.product.nnz());
    }
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> sparse_product_backward_op(const at::Tensor& grad,
                                                              const at::Tensor& query_values,
                                                              const at::Tensor& key_values,
                                                              at::TensorList query, at::TensorList key,
                                                              at::TensorList product) {
  constexpr const char* kOp = "sparse_product_backward";
  const ProductArguments a(kOp, query_values, key_values, query, key, product);
  const at::Tensor g = real_argument(kOp, "grad", grad, {a.query_values.size(0), a.product.nnz()});
  check_values(kOp, "grad", g, a.query_values);
  at::Tensor grad_query = at::empty(a.query_values.sizes(), g.options());
  at::Tensor grad_key = at::empty(a.key_values.sizes(), g.options());
  AT_DISPATCH_FLOATING_TYPES(g.scalar_type(), kOp, [&] {
    for (std::int64_t h = 0; h < g.size(0); ++h) {
      const scalar_t* head = g.const_data_ptr<scalar_t>() + h * a.product.nnz();
      product_backward(a.query.rows(), a.key.transposed(),
                       a.key_values.const_data_ptr<scalar_t>() + h * a.key.nnz(), a.product.rows(), head,
                       grad_query.data_ptr<scalar_t>() + h * a.query.nnz());
      product_backward(a.key.rows(), a.query.transposed(),
                       a.query_values.const_data_ptr<scalar_t>() + h * a.query.nnz(), a.product.transposed(),
                       head, grad_key.data_ptr<scalar_t>() + h * a.key.nnz());
    }
  });
  return {grad_query, grad_key};
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CPU, m) {
  m.impl("transpose_pattern", transpose_pattern_op);
  m.impl("product_pattern", product_pattern_op);
  m.impl("estimate_product_nnz", estimate_product_nnz_op);
  m.impl("sparse_matmul", sparse_matmul_op);
  m.impl("sampled_dots", sampled_dots_op);
  m.impl("sparse_product", sparse_product_op);
  m.impl("sparse_product_backward", sparse_product_backward_op);
}

}  // namespace topomask::ops
