// Patterns, and products with learnable sparse matrices.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <algorithm>

#include "masks/cpu/merge_rows.h"
#include "masks/cpu/sparse_product.h"
#include "masks/sparse_ops.h"
#include "ops/arguments.h"
#include "ops/library_call.h"
#include "ops/tensor_cache.h"

namespace topomask::ops {
namespace {

using PatternTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

PatternTensors tensors_of(const SparsePattern& pattern) {
  return {pattern.row_ptr, pattern.col, pattern.transposed_ptr, pattern.transposed_row,
          pattern.transposed_entry};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> transpose_pattern_op(const at::Tensor& row_ptr,
                                                                    const at::Tensor& col) {
  check_on_cpu("transpose_pattern", "row_ptr", row_ptr);
  const SparsePattern pattern = SparsePattern::from_rows(row_ptr, col);
  return {pattern.transposed_ptr, pattern.transposed_row, pattern.transposed_entry};
}

struct PatternPair {
  PatternPair(const char* op, at::TensorList query_, at::TensorList key_)
      : query(op, "query", query_), key(op, "key", key_) {
    check(query.num_nodes() == key.num_nodes(), "{}: query has {} rows, key has {}", op, query.num_nodes(),
          key.num_nodes());
  }
  PatternArgument query, key;
};

PatternTensors product_pattern_op(at::TensorList query, at::TensorList key) {
  const PatternPair pair("product_pattern", query, key);
  check_on_cpu("product_pattern", "query", pair.query.row_ptr());
  check_on_cpu("product_pattern", "key", pair.key.row_ptr());
  return tensors_of(*make_product_patterns(pair.query.pattern, pair.key.pattern).product);
}

at::Tensor estimate_product_nnz_op(at::TensorList query, at::TensorList key, std::int64_t sample) {
  const PatternPair pair("estimate_product_nnz", query, key);
  check_on_cpu("estimate_product_nnz", "query", pair.query.row_ptr());
  check_on_cpu("estimate_product_nnz", "key", pair.key.row_ptr());
  check(sample >= 1, "estimate_product_nnz: sample must be at least 1, got {}", sample);
  return at::scalar_tensor(
      estimate_product_nnz(rows_of(*pair.query.pattern), transposed_rows_of(*pair.key.pattern), sample),
      at::kDouble);
}

// The union of patterns that stand at `offsets` on the diagonal of a larger one, and where each one's entries
// stand in it, one after the other.
std::tuple<at::Tensor, at::Tensor, at::Tensor> merge_patterns(at::TensorList row_ptrs, at::TensorList cols,
                                                              at::IntArrayRef offsets,
                                                              std::int64_t num_nodes) {
  check(row_ptrs.size() == cols.size() && row_ptrs.size() == offsets.size(),
        "merge_patterns: expected as many row_ptrs as cols and offsets, got {}, {} and {}", row_ptrs.size(),
        cols.size(), offsets.size());
  std::vector<SparsePattern> patterns;
  std::vector<PlacedRows> parts;
  std::int64_t total = 0;
  for (std::size_t p = 0; p < row_ptrs.size(); ++p) {
    check_on_cpu("merge_patterns", "row_ptrs", row_ptrs[p]);
    patterns.push_back(SparsePattern::from_rows(row_ptrs[p], cols[p]));  // checks the rows
    const SparsePattern& pattern = patterns.back();
    check(offsets[p] >= 0 && offsets[p] <= num_nodes - pattern.num_nodes(),
          "merge_patterns: a pattern of {} rows at {} does not fit {} nodes", pattern.num_nodes(), offsets[p],
          num_nodes);
    parts.push_back({pattern.num_nodes(), offsets[p], pattern.row_ptr.const_data_ptr<std::int64_t>(),
                     pattern.col.const_data_ptr<std::int32_t>()});
    total += pattern.nnz();
  }
  at::Tensor row_ptr = at::empty({num_nodes + 1}, at::kLong), slot = at::empty({total}, at::kLong);
  count_merged_rows(num_nodes, parts, row_ptr.data_ptr<std::int64_t>());
  at::Tensor col = at::empty({row_ptr.const_data_ptr<std::int64_t>()[num_nodes]}, at::kInt);
  std::vector<std::int64_t*> slots;
  auto* next = slot.data_ptr<std::int64_t>();
  for (const SparsePattern& pattern : patterns) {
    slots.push_back(next);
    next += pattern.nnz();
  }
  fill_merged_rows(num_nodes, parts, row_ptr.const_data_ptr<std::int64_t>(), col.data_ptr<std::int32_t>(),
                   slots);
  return {row_ptr, col, slot};
}

void check_one_dtype(const char* op, const char* argument, const at::Tensor& values,
                     const at::Tensor& other) {
  check(values.scalar_type() == other.scalar_type(),
        "{}: {} must have one dtype with the rest, got {} and {}", op, argument,
        c10::toString(values.scalar_type()), c10::toString(other.scalar_type()));
}

// ---- y_h = A_h x_h, or A_h^T x_h ----

TensorFunction run_matmul(at::TensorList pattern, bool transposed) {
  return [kept = pattern.vec(), transposed](const Tensors& in) {
    const PatternArgument matrix("sparse_matmul", "pattern", kept);
    const at::Tensor x = real_argument("sparse_matmul", "x", in[1], {-1, matrix.num_nodes(), -1});
    const at::Tensor values = real_argument("sparse_matmul", "values", in[0], {-1, matrix.nnz()});
    check(values.size(0) == 1 || values.size(0) == x.size(0), "sparse_matmul: values has {} heads, x has {}",
          values.size(0), x.size(0));
    check_one_dtype("sparse_matmul", "values", values, x);
    return sparse_matmul(matrix.pattern, values, x, transposed);
  };
}

at::Tensor sparse_matmul_op(const at::Tensor& values, const at::Tensor& x, at::TensorList pattern,
                            bool transposed) {
  return without_graph(run_matmul(pattern, transposed), {values, x});
}

std::tuple<at::Tensor, at::Tensor> sparse_matmul_backward_op(const at::Tensor& grad, const at::Tensor& values,
                                                             const at::Tensor& x, at::TensorList pattern,
                                                             bool transposed, std::array<bool, 2> needs) {
  return gradients_of<2>(run_matmul(pattern, transposed), {values, x}, grad, needs);
}

at::Tensor sparse_matmul_autograd(const at::Tensor& values, const at::Tensor& x, at::TensorList pattern,
                                  bool transposed) {
  static const auto forward = find_operator<decltype(sparse_matmul_op)>("topomask::sparse_matmul");
  static const auto backward =
      find_operator<decltype(sparse_matmul_backward_op)>("topomask::sparse_matmul_backward");
  return differentiable({values, x}, library_call<2>(run_matmul(pattern, transposed), forward, backward,
                                                     pattern.vec(), transposed));
}

// ---- the matrix itself ----

TensorFunction run_write_out(at::TensorList pattern) {
  return [kept = pattern.vec()](const Tensors& in) {
    const PatternArgument matrix("write_out", "pattern", kept);
    check_real("write_out", "values", in[0], {-1, matrix.nnz()});
    check_same_place("write_out", "values", in[0], "pattern", matrix.row_ptr());
    return write_out(*matrix.pattern, in[0]);
  };
}

at::Tensor write_out_op(const at::Tensor& values, at::TensorList pattern) {
  return without_graph(run_write_out(pattern), {values});
}

at::Tensor write_out_backward_op(const at::Tensor& grad, const at::Tensor& values, at::TensorList pattern) {
  return gradients_of(run_write_out(pattern), {values}, grad, {true})[0];
}

at::Tensor write_out_autograd(const at::Tensor& values, at::TensorList pattern) {
  static const auto forward = find_operator<decltype(write_out_op)>("topomask::write_out");
  static const auto backward = find_operator<decltype(write_out_backward_op)>("topomask::write_out_backward");
  LibraryCall call;
  call.run = run_write_out(pattern);
  call.forward_operator = [kept = pattern.vec()](const Tensors& x) { return forward.call(x[0], kept); };
  call.backward_operator = [kept = pattern.vec()](const at::Tensor& grad, const Tensors& x,
                                                  const std::vector<bool>&) {
    return Tensors{backward.call(grad, x[0], kept)};
  };
  return differentiable({values}, call);
}

// ---- values of M = Phi Psi^T ----

// Which entries meet in each product is found once on a GPU, and kept with the tensors of the patterns.
std::shared_ptr<ProductOnDevice> product_on_device(const Tensors& tensors, const ProductPatterns& patterns) {
  static TensorCache<ProductOnDevice>& cache = *new TensorCache<ProductOnDevice>;  // outlives CUDA
  return cache.get(tensors, [&] { return describe_product_on_device(patterns); });
}

// Whether Phi and Psi have one pattern: then so may their values, and M is symmetric.
bool are_same(at::TensorList a, at::TensorList b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return x.is_same(y); });
}

TensorFunction run_product(at::TensorList query, at::TensorList key, at::TensorList product) {
  return [q = query.vec(), k = key.vec(), m = product.vec()](const Tensors& in) {
    const PatternPair pair("sparse_product", q, k);
    const PatternArgument result("sparse_product", "product", m);
    check(result.num_nodes() == pair.query.num_nodes(), "sparse_product: query has {} rows, product has {}",
          pair.query.num_nodes(), result.num_nodes());
    const at::Tensor left = real_argument("sparse_product", "query_values", in[0], {-1, pair.query.nnz()});
    const at::Tensor right = in[1].is_same(in[0]) ? left
                                                  : real_argument("sparse_product", "key_values", in[1],
                                                                  {left.size(0), pair.key.nnz()});
    check_one_dtype("sparse_product", "key_values", right, left);
    check_same_place("sparse_product", "key", pair.key.row_ptr(), "query", pair.query.row_ptr());
    check_same_place("sparse_product", "product", result.row_ptr(), "query", pair.query.row_ptr());
    check_same_place("sparse_product", "query_values", left, "query", pair.query.row_ptr());
    check_same_place("sparse_product", "key_values", right, "query", pair.query.row_ptr());
    ProductPatterns patterns{.query = pair.query.pattern,
                             .key = are_same(q, k) ? pair.query.pattern : pair.key.pattern,
                             .product = result.pattern};
    if (left.is_cuda())
      patterns.on_device = product_on_device({q[0], q[1], k[0], k[1], m[0], m[1]}, patterns);
    return sparse_product(patterns, left, right);
  };
}

at::Tensor sparse_product_op(const at::Tensor& query_values, const at::Tensor& key_values,
                             at::TensorList query, at::TensorList key, at::TensorList product) {
  return without_graph(run_product(query, key, product), {query_values, key_values});
}

std::tuple<at::Tensor, at::Tensor> sparse_product_backward_op(
    const at::Tensor& grad, const at::Tensor& query_values, const at::Tensor& key_values,
    at::TensorList query, at::TensorList key, at::TensorList product, std::array<bool, 2> needs) {
  return gradients_of<2>(run_product(query, key, product), {query_values, key_values}, grad, needs);
}

at::Tensor sparse_product_autograd(const at::Tensor& query_values, const at::Tensor& key_values,
                                   at::TensorList query, at::TensorList key, at::TensorList product) {
  static const auto forward = find_operator<decltype(sparse_product_op)>("topomask::sparse_product");
  static const auto backward =
      find_operator<decltype(sparse_product_backward_op)>("topomask::sparse_product_backward");
  const auto call = library_call<2>(run_product(query, key, product), forward, backward, query.vec(),
                                    key.vec(), product.vec());
  if (!query_values.is_same(key_values) || !are_same(query, key))
    return differentiable({query_values, key_values}, call);
  // M = Phi Phi^T: the library has both halves of the gradient in one pass.
  LibraryCall square;
  square.run = [call](const Tensors& x) { return call.run({x[0], x[0]}); };
  square.forward_operator = [call](const Tensors& x) { return call.forward_operator({x[0], x[0]}); };
  square.backward_operator = [call](const at::Tensor& grad, const Tensors& x, const std::vector<bool>&) {
    const Tensors halves = call.backward_operator(grad, {x[0], x[0]}, {true, true});
    return Tensors{halves[0] + halves[1]};
  };
  return differentiable({query_values}, square);
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("transpose_pattern", transpose_pattern_op);
  m.impl("product_pattern", product_pattern_op);
  m.impl("estimate_product_nnz", estimate_product_nnz_op);
  m.impl("merge_patterns", merge_patterns);
  m.impl("sparse_matmul", sparse_matmul_op);
  m.impl("sparse_matmul_backward", sparse_matmul_backward_op);
  m.impl("write_out", write_out_op);
  m.impl("write_out_backward", write_out_backward_op);
  m.impl("sparse_product", sparse_product_op);
  m.impl("sparse_product_backward", sparse_product_backward_op);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("sparse_matmul", sparse_matmul_autograd);
  m.impl("write_out", write_out_autograd);
  m.impl("sparse_product", sparse_product_autograd);
}

}  // namespace topomask::ops
