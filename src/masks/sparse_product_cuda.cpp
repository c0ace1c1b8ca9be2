#include "masks/sparse_product_cuda.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "core/cuda/primitives.h"
#include "core/cuda_launch.h"
#include "masks/cuda/sparse_product.h"

namespace topomask {

namespace {

// Counts, then writes; what both passes share.
struct PatternPasses {
  at::Tensor count, long_rows, num_long, bitmap;
  cuda::ProductPatternArguments arguments;

  PatternPasses(const SparsePattern& query, const SparsePattern& key, std::int64_t num_rows,
                std::int64_t row_step) {
    const at::TensorOptions ints = query.col.options();
    const std::int64_t words =
        static_cast<std::int64_t>(cuda::product_pattern_bitmap_words(query.num_nodes()));
    count = at::empty({num_rows}, ints);
    long_rows = at::empty({num_rows}, ints);
    num_long = at::zeros({1}, ints);
    bitmap = at::zeros({words}, ints);
    arguments.query = rows_of(query);
    arguments.key_columns = transposed_rows_of(key);
    arguments.num_rows = num_rows;
    arguments.row_step = row_step;
    arguments.count = count.data_ptr<std::int32_t>();
    arguments.long_rows = long_rows.data_ptr<std::int32_t>();
    arguments.num_long = reinterpret_cast<unsigned*>(num_long.data_ptr<std::int32_t>());
    arguments.bitmap = reinterpret_cast<unsigned*>(bitmap.data_ptr<std::int32_t>());
  }
};

// [heads, nnz] -> [nnz, heads], which is the same for one head.
at::Tensor heads_last(const at::Tensor& values) {
  return values.size(0) == 1 ? values.contiguous() : values.t().contiguous();
}

}  // namespace

std::int64_t longest_row_cuda(const at::Tensor& row_ptr) {
  return row_ptr.size(0) == 1 ? 0 : row_ptr.diff().max().item<std::int64_t>();
}

std::int64_t longest_column_cuda(const at::Tensor& col) {
  return col.size(0) == 0 ? 0 : col.bincount().max().item<std::int64_t>();
}

ProductRows product_pattern_cuda(const SparsePattern& query, const SparsePattern& key) {
  const CudaLaunch launch(query.row_ptr);
  const std::int64_t rows = query.num_nodes();
  PatternPasses passes(query, key, rows, 1);
  check_cuda(cuda::product_pattern(passes.arguments, launch.stream), "sparse product");
  ProductRows result;
  result.row_ptr = at::empty({rows + 1}, query.row_ptr.options());
  const std::size_t bytes = ScanCounts::workspace_bytes(rows);
  const at::Tensor workspace =
      at::empty({static_cast<std::int64_t>(bytes)}, query.col.options().dtype(at::kByte));
  check_cuda(
      ScanCounts::run(passes.count.const_data_ptr<std::int32_t>(), rows,
                      result.row_ptr.data_ptr<std::int64_t>(), workspace.data_ptr(), bytes, launch.stream),
      "sparse product");
  result.col = at::empty({result.row_ptr[rows].item<std::int64_t>()}, query.col.options());
  passes.arguments.row_ptr = result.row_ptr.const_data_ptr<std::int64_t>();
  passes.arguments.col = result.col.data_ptr<std::int32_t>();
  if (result.col.size(0) > 0)
    check_cuda(cuda::product_pattern(passes.arguments, launch.stream), "sparse product");
  return result;
}

double estimate_product_nnz_cuda(const SparsePattern& query, const SparsePattern& key, std::int64_t sample) {
  const CudaLaunch launch(query.row_ptr);
  const std::int64_t rows = query.num_nodes();
  if (rows == 0) return 0;
  const std::int64_t step = std::max<std::int64_t>(rows / sample, 1), counted = (rows + step - 1) / step;
  PatternPasses passes(query, key, counted, step);
  check_cuda(cuda::product_pattern(passes.arguments, launch.stream), "sparse product");
  const double entries = static_cast<double>(passes.count.sum().item<std::int64_t>());
  return entries / static_cast<double>(counted) * static_cast<double>(rows);
}

at::Tensor product_values_cuda(const ProductPatterns& patterns, const at::Tensor& query,
                               const at::Tensor& key) {
  const CudaLaunch launch(query);
  const std::int64_t heads = query.size(0), nnz = patterns.product->nnz();
  const at::Tensor query_last = heads_last(query);
  const at::Tensor key_last = key.is_same(query) ? query_last : heads_last(key);
  at::Tensor values = at::empty({heads, nnz}, query.options());
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "sparse_product", [&] {
    cuda::ProductValuesArguments<scalar_t> a;
    a.query = rows_of(*patterns.query);
    a.key_columns = transposed_rows_of(*patterns.key);
    a.product = rows_of(*patterns.product);
    a.nnz = nnz;
    a.longest_row = patterns.longest_row;
    a.heads = heads;
    a.query_value = query_last.const_data_ptr<scalar_t>();
    a.key_value = key_last.const_data_ptr<scalar_t>();
    a.value = values.data_ptr<scalar_t>();
    check_cuda(cuda::product_values(a, launch.stream), "sparse product");
  });
  return values;
}

std::pair<at::Tensor, at::Tensor> product_backward_cuda(const ProductPatterns& patterns,
                                                        const at::Tensor& query, const at::Tensor& key,
                                                        const at::Tensor& grad, bool shared) {
  const CudaLaunch launch(query);
  const std::int64_t heads = query.size(0);
  const at::Tensor query_last = heads_last(query), grad_last = heads_last(grad);
  const at::Tensor key_last = shared ? query_last : heads_last(key);
  const auto gradient = [&](const SparsePattern& rows, const SparsePattern& others, const SparseRows& product,
                            const at::Tensor& other_values, const std::int64_t* mirror,
                            std::int64_t longest) {
    at::Tensor out = at::empty({rows.nnz(), heads}, query.options());
    AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "sparse_product_backward", [&] {
      cuda::ProductBackwardArguments<scalar_t> a;
      a.query = rows_of(rows);
      a.key_columns = transposed_rows_of(others);
      a.product = product;
      a.longest_row = longest;
      a.heads = heads;
      a.grad = grad_last.const_data_ptr<scalar_t>();
      a.mirror = mirror;
      a.key_value = other_values.const_data_ptr<scalar_t>();
      a.grad_query = out.data_ptr<scalar_t>();
      check_cuda(cuda::product_backward(a, launch.stream), "sparse product");
    });
    return out.t();
  };
  const SparseRows product = rows_of(*patterns.product), transposed = transposed_rows_of(*patterns.product);
  if (shared) {
    // The pattern is symmetric: its columns list the entries in the order of their mirror images.
    return {
        gradient(*patterns.query, *patterns.key, product, query_last, transposed.entry, patterns.longest_row),
        at::Tensor()};
  }
  return {gradient(*patterns.query, *patterns.key, product, key_last, nullptr, patterns.longest_row),
          gradient(*patterns.key, *patterns.query, transposed, query_last, nullptr, patterns.longest_column)};
}

}  // namespace topomask
