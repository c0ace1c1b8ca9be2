#include "masks/gpu.h"

#include <ATen/Dispatch.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "core/check.h"
#include "core/cuda/primitives.h"
#include "core/cuda_launch.h"
#include "core/gpu.h"
#include "graph/cuda/transform.h"
#include "masks/cuda/sparse_product.h"
#include "masks/cuda/sparse_product_pairs.h"

namespace topomask {

struct ProductOnDevice {
  // The products that belong to each entry of one of the three matrices, as entries of the other two.
  struct PairList {
    at::Tensor ptr;            // [entries+1] int64
    at::Tensor first, second;  // [pairs] int32
  };

  std::int64_t longest_row = 0, longest_column = 0;  // of the product
  std::int64_t num_pairs = 0;
  at::Tensor pair_ptr;  // [nnz(Phi)+1] int64: products of each entry of Phi; undefined: too many to list
  // Made when they are first needed.
  std::mutex mutex;
  PairList of_product;  // entries of Phi and Psi
  PairList of_query;    // entries of M and Psi
  PairList of_key;      // entries of M and Phi

  bool lists_pairs() const { return pair_ptr.defined(); }
};

namespace {

using PairList = ProductOnDevice::PairList;

// Counts, then writes; what both passes share.
struct PatternPasses {
  at::Tensor count, long_rows, num_long, bitmap;
  cuda::ProductPatternArguments arguments;

  PatternPasses(const SparsePattern& query, const SparsePattern& key, std::int64_t num_rows,
                std::int64_t row_step) {
    const at::TensorOptions ints = query.col.options();
    count = at::empty({num_rows}, ints);
    long_rows = at::empty({num_rows}, ints);
    num_long = at::zeros({1}, ints);
    bitmap = at::zeros({cuda::long_row_bitmaps(query.num_nodes()).total()}, ints);
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

namespace {

std::int64_t longest_row_of(const at::Tensor& row_ptr) {
  return row_ptr.size(0) == 1 ? 0 : row_ptr.diff().max().item<std::int64_t>();
}

// [n] int32 -> [n+1] int64
at::Tensor offsets_of(const at::Tensor& counts, cudaStream_t stream) {
  const std::int64_t n = counts.size(0);
  at::Tensor offsets = at::empty({n + 1}, counts.options().dtype(at::kLong));
  const std::size_t bytes = ScanCounts::workspace_bytes(n);
  const at::Tensor workspace =
      at::empty({static_cast<std::int64_t>(bytes)}, counts.options().dtype(at::kByte));
  check_cuda(ScanCounts::run(counts.const_data_ptr<std::int32_t>(), n, offsets.data_ptr<std::int64_t>(),
                             workspace.data_ptr(), bytes, stream),
             "sparse product");
  return offsets;
}

struct ProductRows {
  at::Tensor row_ptr;  // [N+1] int64
  at::Tensor col;      // [nnz] int32
};

ProductRows product_rows(const SparsePattern& query, const SparsePattern& key, cudaStream_t stream) {
  const std::int64_t rows = query.num_nodes();
  PatternPasses passes(query, key, rows, 1);
  check_cuda(cuda::product_pattern(passes.arguments, stream), "sparse product");
  ProductRows result;
  result.row_ptr = offsets_of(passes.count, stream);
  result.col = at::empty({result.row_ptr[rows].item<std::int64_t>()}, query.col.options());
  passes.arguments.row_ptr = result.row_ptr.const_data_ptr<std::int64_t>();
  passes.arguments.col = result.col.data_ptr<std::int32_t>();
  if (result.col.size(0) > 0) check_cuda(cuda::product_pattern(passes.arguments, stream), "sparse product");
  return result;
}

// The pairs in the order of the entries of Phi: entries of M and Psi, and where asked for, of Phi.
PairList list_by_query(const ProductPatterns& patterns, at::Tensor* query_entry, cudaStream_t stream) {
  const ProductOnDevice& known = *patterns.on_device;
  const SparsePattern& query = *patterns.query;
  const at::TensorOptions ints = query.col.options();
  const at::Tensor query_row = at::empty({query.nnz()}, ints);
  check_cuda(cuda::entry_rows(query.row_ptr.const_data_ptr<std::int64_t>(), query.num_nodes(),
                              query_row.data_ptr<std::int32_t>(), stream),
             "sparse product");
  PairList list{known.pair_ptr, at::empty({known.num_pairs}, ints), at::empty({known.num_pairs}, ints)};
  if (query_entry != nullptr) *query_entry = at::empty({known.num_pairs}, ints);
  cuda::ListPairsArguments a;
  a.query = rows_of(query);
  a.key_columns = transposed_rows_of(*patterns.key);
  a.product = rows_of(*patterns.product);
  a.query_nnz = query.nnz();
  a.query_row = query_row.const_data_ptr<std::int32_t>();
  a.ptr = known.pair_ptr.const_data_ptr<std::int64_t>();
  a.query_entry = query_entry != nullptr ? query_entry->data_ptr<std::int32_t>() : nullptr;
  a.product_entry = list.first.data_ptr<std::int32_t>();
  a.key_entry = list.second.data_ptr<std::int32_t>();
  check_cuda(cuda::list_pairs(a, stream), "sparse product");
  return list;
}

// The same pairs by the entries in `by` (of `entries`), each keeping its order.
PairList sorted_by(const at::Tensor& by, std::int64_t entries, const at::Tensor& first,
                   const at::Tensor& second, cudaStream_t stream) {
  const std::int64_t pairs = by.size(0);
  const at::Tensor sorted = at::empty_like(by), position = at::empty_like(by),
                   numbers = at::arange(pairs, by.options());
  int bits = 1;
  while (entries >> bits != 0) ++bits;
  using Sort = SortPairs<std::uint32_t>;
  const std::size_t bytes = Sort::workspace_bytes(pairs, bits);
  const at::Tensor workspace = at::empty({static_cast<std::int64_t>(bytes)}, by.options().dtype(at::kByte));
  auto* keys = reinterpret_cast<std::uint32_t*>(sorted.data_ptr<std::int32_t>());
  check_cuda(Sort::run(reinterpret_cast<const std::uint32_t*>(by.const_data_ptr<std::int32_t>()),
                       numbers.const_data_ptr<std::int32_t>(), pairs, bits, keys,
                       position.data_ptr<std::int32_t>(), workspace.data_ptr(), bytes, stream),
             "sparse product");
  PairList list;
  list.ptr = at::empty({entries + 1}, by.options().dtype(at::kLong));
  check_cuda(cuda::offsets_of_sorted(keys, pairs, entries, list.ptr.data_ptr<std::int64_t>(), stream),
             "sparse product");
  list.first = first.index_select(0, position);
  list.second = second.index_select(0, position);
  return list;
}

const PairList& pairs_of_product(const ProductPatterns& patterns, cudaStream_t stream) {
  ProductOnDevice& known = *patterns.on_device;
  const std::lock_guard<std::mutex> lock(known.mutex);
  if (!known.of_product.ptr.defined()) {
    at::Tensor query_entry;
    const PairList by_query = list_by_query(patterns, &query_entry, stream);
    known.of_product =
        sorted_by(by_query.first, patterns.product->nnz(), query_entry, by_query.second, stream);
  }
  return known.of_product;
}

const PairList& pairs_of_query(const ProductPatterns& patterns, cudaStream_t stream) {
  ProductOnDevice& known = *patterns.on_device;
  const std::lock_guard<std::mutex> lock(known.mutex);
  if (!known.of_query.ptr.defined()) known.of_query = list_by_query(patterns, nullptr, stream);
  return known.of_query;
}

const PairList& pairs_of_key(const ProductPatterns& patterns, cudaStream_t stream) {
  ProductOnDevice& known = *patterns.on_device;
  const std::lock_guard<std::mutex> lock(known.mutex);
  if (!known.of_key.ptr.defined()) {
    at::Tensor query_entry;
    const PairList by_query = list_by_query(patterns, &query_entry, stream);
    known.of_key = sorted_by(by_query.second, patterns.key->nnz(), by_query.first, query_entry, stream);
  }
  return known.of_key;
}

// [entries, heads], or [heads, entries].
at::Tensor sum_pairs(const PairList& list, const at::Tensor& a, const at::Tensor& b, std::int64_t heads,
                     bool heads_first, cudaStream_t stream) {
  const std::int64_t entries = list.ptr.size(0) - 1;
  at::Tensor out =
      heads_first ? at::empty({heads, entries}, a.options()) : at::empty({entries, heads}, a.options());
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "sparse_product", [&] {
    cuda::PairSumsArguments<scalar_t> g;
    g.entries = entries;
    g.heads = heads;
    g.ptr = list.ptr.const_data_ptr<std::int64_t>();
    g.first = list.first.const_data_ptr<std::int32_t>();
    g.second = list.second.const_data_ptr<std::int32_t>();
    g.a = a.const_data_ptr<scalar_t>();
    g.b = b.const_data_ptr<scalar_t>();
    g.out = out.data_ptr<scalar_t>();
    g.heads_first = heads_first;
    check_cuda(cuda::pair_sums(g, stream), "sparse product");
  });
  return out;
}

// On the current device. While a list is made, it takes five times its bytes.
std::int64_t max_listed_pairs() {
  constexpr std::int64_t kListsInMemory = 32, kBytesAPair = 2 * sizeof(std::int32_t);
  const auto memory = static_cast<std::int64_t>(at::cuda::getCurrentDeviceProperties()->totalGlobalMem);
  return std::min<std::int64_t>(memory / (kListsInMemory * kBytesAPair),
                                std::numeric_limits<std::int32_t>::max());
}

// Values by heads_last() and their transpose, added.
at::Tensor with_mirror_image(const at::Tensor& values, const std::int64_t* mirror, std::int64_t heads,
                             cudaStream_t stream) {
  at::Tensor out = at::empty_like(values);
  AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "sparse_product_backward", [&] {
    check_cuda(cuda::add_mirror_image(values.const_data_ptr<scalar_t>(), mirror, values.numel() / heads,
                                      heads, out.data_ptr<scalar_t>(), stream),
               "sparse product");
  });
  return out;
}

}  // namespace

ProductPatterns make_product_patterns_cuda(std::shared_ptr<const SparsePattern> query,
                                           std::shared_ptr<const SparsePattern> key,
                                           std::optional<std::int64_t> max_pairs) {
  check(capture_id(query->device()) == 0,
        "sparse product: a CUDA graph cannot count the entries of a product; make its pattern before the "
        "capture, or "
        "use asymmetric features");
  check(!query->padded && !key->padded, "sparse product: expected features without padding, got padded ones");
  const CudaLaunch launch(query->row_ptr);
  ProductRows rows = product_rows(*query, *key, launch.stream);
  auto product =
      std::make_shared<SparsePattern>(SparsePattern::from_rows(std::move(rows.row_ptr), std::move(rows.col)));
  ProductPatterns patterns{std::move(query), std::move(key), std::move(product), nullptr, nullptr};
  patterns.on_device = describe_product_cuda(patterns, max_pairs);
  return patterns;
}

std::shared_ptr<ProductOnDevice> describe_product_cuda(const ProductPatterns& patterns,
                                                       std::optional<std::int64_t> max_pairs) {
  const SparsePattern &query = *patterns.query, &key = *patterns.key, &product = *patterns.product;
  const CudaLaunch launch(query.row_ptr);
  auto known = std::make_shared<ProductOnDevice>();
  const at::Tensor pairs = at::empty({query.nnz()}, query.col.options());
  check_cuda(cuda::count_pairs(rows_of(query), query.nnz(), transposed_rows_of(key),
                               pairs.data_ptr<std::int32_t>(), launch.stream),
             "sparse product");
  const at::Tensor pair_ptr = offsets_of(pairs, launch.stream);
  known->num_pairs = pair_ptr[query.nnz()].item<std::int64_t>();
  if (known->num_pairs <= max_pairs.value_or(max_listed_pairs())) {
    known->pair_ptr = pair_ptr;
  } else {
    known->longest_row = longest_row_of(product.row_ptr);
    // A symmetric product is as wide as it is long.
    known->longest_column = patterns.query == patterns.key
                                ? known->longest_row
                                : product.col.bincount().max().item<std::int64_t>();
  }
  return known;
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
  const ProductOnDevice& known = *patterns.on_device;
  if (known.lists_pairs()) {
    return sum_pairs(pairs_of_product(patterns, launch.stream), query_last, key_last, heads, true,
                     launch.stream);
  }
  at::Tensor values = at::empty({heads, nnz}, query.options());
  AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "sparse_product", [&] {
    cuda::ProductValuesArguments<scalar_t> a;
    a.query = rows_of(*patterns.query);
    a.key_columns = transposed_rows_of(*patterns.key);
    a.product = rows_of(*patterns.product);
    a.nnz = nnz;
    a.longest_row = known.longest_row;
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
  const SparseRows product = rows_of(*patterns.product), transposed = transposed_rows_of(*patterns.product);
  const at::Tensor query_last = heads_last(query);
  const at::Tensor key_last = shared ? query_last : heads_last(key);
  // Shared values have a symmetric product, whose columns list the entries in the order of their mirror
  // images.
  const at::Tensor grad_last =
      shared ? with_mirror_image(heads_last(grad), transposed.entry, heads, launch.stream) : heads_last(grad);
  const ProductOnDevice& known = *patterns.on_device;
  if (known.lists_pairs()) {
    const at::Tensor of_query =
        sum_pairs(pairs_of_query(patterns, launch.stream), grad_last, key_last, heads, false, launch.stream);
    if (shared) return {of_query.t(), at::Tensor()};
    const at::Tensor of_key =
        sum_pairs(pairs_of_key(patterns, launch.stream), grad_last, query_last, heads, false, launch.stream);
    return {of_query.t(), of_key.t()};
  }
  const auto gradient = [&](const SparsePattern& rows, const SparsePattern& others, const SparseRows& between,
                            const at::Tensor& other_values, std::int64_t longest) {
    at::Tensor out = at::empty({rows.nnz(), heads}, query.options());
    AT_DISPATCH_FLOATING_TYPES(query.scalar_type(), "sparse_product_backward", [&] {
      cuda::ProductBackwardArguments<scalar_t> a;
      a.query = rows_of(rows);
      a.key_columns = transposed_rows_of(others);
      a.product = between;
      a.longest_row = longest;
      a.heads = heads;
      a.grad = grad_last.const_data_ptr<scalar_t>();
      a.key_value = other_values.const_data_ptr<scalar_t>();
      a.grad_query = out.data_ptr<scalar_t>();
      check_cuda(cuda::product_backward(a, launch.stream), "sparse product");
    });
    return out.t();
  };
  const at::Tensor of_query = gradient(*patterns.query, *patterns.key, product, key_last, known.longest_row);
  if (shared) return {of_query, at::Tensor()};
  return {of_query, gradient(*patterns.key, *patterns.query, transposed, query_last, known.longest_column)};
}

}  // namespace topomask
