#include "graph/gpu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <bit>
#include <limits>

#include "core/check.h"
#include "core/cuda/primitives.h"
#include "core/cuda_launch.h"
#include "graph/cuda/knn.h"
#include "graph/cuda/transform.h"

namespace topomask {

namespace {

const std::uint32_t* unsigned_data(const at::Tensor& x) {
  return reinterpret_cast<const std::uint32_t*>(x.const_data_ptr<std::int32_t>());
}

// [E] int32
at::Tensor rows_of_entries(const Graph& graph, cudaStream_t stream) {
  at::Tensor rows = at::empty({graph.num_entries()}, graph.col.options());
  check_cuda(cuda::entry_rows(graph.row_ptr.const_data_ptr<std::int64_t>(), graph.num_nodes(),
                              rows.data_ptr<std::int32_t>(), stream),
             "entry_rows");
  return rows;
}

at::Tensor offsets_from(const at::Tensor& sorted_rows, std::int64_t num_rows, cudaStream_t stream) {
  at::Tensor ptr = at::empty({num_rows + 1}, sorted_rows.options().dtype(at::kLong));
  check_cuda(cuda::offsets_of_sorted(unsigned_data(sorted_rows), sorted_rows.size(0), num_rows,
                                     ptr.data_ptr<std::int64_t>(), stream),
             "offsets_of_sorted");
  return ptr;
}

at::Tensor contiguous_points(const at::Tensor& points) {
  return points.detach().to(at::kFloat).contiguous();
}

}  // namespace

TransposedEntries transpose_entries_cuda(const at::Tensor& row_ptr, const at::Tensor& col,
                                         std::int64_t num_columns, bool wide) {
  const CudaLaunch launch(row_ptr);
  const std::int64_t entries = col.size(0);
  check(entries <= std::numeric_limits<std::int32_t>::max(),
        "transpose: a GPU transposes at most 2^31 - 1 entries, got {}", entries);
  const at::Tensor starts = row_ptr.contiguous(), columns = col.contiguous();
  const at::Tensor lists = at::empty({4, entries}, columns.options());
  auto* list = lists.data_ptr<std::int32_t>();
  cuda::EntryLists a;
  a.row_ptr = starts.const_data_ptr<std::int64_t>();
  a.col = columns.const_data_ptr<std::int32_t>();
  a.num_rows = starts.size(0) - 1;
  a.entries = entries;
  a.behind = static_cast<std::int32_t>(num_columns);
  a.row = list;
  a.key = list + entries;
  a.position = list + 2 * entries;
  check_cuda(cuda::list_entries(a, launch.stream), "transpose");
  const at::Tensor sorted = lists.select(0, 3), entry = at::empty_like(columns);
  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(num_columns) | 1));
  using Sort = SortPairs<std::uint32_t>;
  const std::size_t bytes = Sort::workspace_bytes(entries, bits);
  const at::Tensor workspace = bytes_on(col, bytes);
  check_cuda(Sort::run(reinterpret_cast<const std::uint32_t*>(a.key), a.position, entries, bits,
                       reinterpret_cast<std::uint32_t*>(sorted.data_ptr<std::int32_t>()),
                       entry.data_ptr<std::int32_t>(), workspace.data_ptr(), bytes, launch.stream),
             "transpose");
  TransposedEntries result;
  result.ptr = offsets_from(sorted, num_columns, launch.stream);
  result.row = at::empty_like(columns);
  result.entry = wide ? at::empty({entries}, starts.options()) : entry;
  check_cuda(cuda::gather_rows(a.row, entry.const_data_ptr<std::int32_t>(), entries,
                               result.row.data_ptr<std::int32_t>(),
                               wide ? result.entry.data_ptr<std::int64_t>() : nullptr, launch.stream),
             "transpose");
  return result;
}

at::Tensor entry_rows_cuda(const at::Tensor& row_ptr, std::int64_t entries) {
  const CudaLaunch launch(row_ptr);
  at::Tensor rows = at::empty({entries}, row_ptr.options().dtype(at::kInt));
  cuda::EntryLists a;
  a.row_ptr = row_ptr.const_data_ptr<std::int64_t>();
  a.num_rows = row_ptr.size(0) - 1;
  a.entries = entries;
  a.row = rows.data_ptr<std::int32_t>();
  check_cuda(cuda::list_entries(a, launch.stream), "entry_rows");
  return rows;
}

Graph transposed_cuda(const Graph& graph) {
  const TransposedEntries columns = transpose_entries_cuda(graph.row_ptr, graph.col, graph.num_nodes());
  return {columns.ptr, columns.row, graph.weight.index_select(0, columns.entry), graph.directed};
}

Graph permuted_cuda(const Graph& graph, const at::Tensor& order) {
  const CudaLaunch launch(graph.row_ptr);
  const std::int64_t nodes = graph.num_nodes();
  const at::Tensor position = inverse_order(order);
  const at::Tensor row = position.index_select(0, rows_of_entries(graph, launch.stream)),
                   col = position.index_select(0, graph.col);
  // Stable, so that parallel entries keep their order.
  const auto [key, entry] = at::sort(row * nodes + col, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  if (nodes == 0) return graph;
  const at::Tensor rows = key.floor_divide(nodes).to(at::kInt), cols = key.remainder(nodes).to(at::kInt);
  return {offsets_from(rows, nodes, launch.stream), cols, graph.weight.index_select(0, entry), graph.directed,
          graph.out_degree};
}

Graph normalise_cuda(const Graph& graph, Normalisation how) {
  if (how == Normalisation::none) return graph;
  const CudaLaunch launch(graph.row_ptr);
  const std::int64_t nodes = graph.num_nodes();
  const at::TensorOptions doubles = graph.weight.options().dtype(at::kDouble);
  const auto inverse_root_sums = [&](const Graph& of) {
    at::Tensor inverse = at::empty({nodes}, doubles);
    check_cuda(
        cuda::inverse_root_sums(of.row_ptr.const_data_ptr<std::int64_t>(), of.weight.const_data_ptr<float>(),
                                nodes, inverse.data_ptr<double>(), launch.stream),
        "normalise");
    return inverse;
  };
  at::Tensor scaled = at::empty_like(graph.weight);
  if (how == Normalisation::random_walk) {
    check_cuda(cuda::stochastic_rows(graph.row_ptr.const_data_ptr<std::int64_t>(),
                                     graph.weight.const_data_ptr<float>(), nodes, scaled.data_ptr<float>(),
                                     launch.stream),
               "normalise");
    return graph.with_weight(scaled);
  }
  at::Tensor left, right;
  if (how == Normalisation::symmetric) {
    left = inverse_root_sums(graph);
    right = graph.directed ? inverse_root_sums(transposed_cuda(graph)) : left;
  } else if (graph.num_entries() > 0) {
    const at::Tensor degree = graph.row_ptr.diff().index_select(0, rows_of_entries(graph, launch.stream));
    const at::Tensor largest = (graph.weight.to(at::kDouble).abs() * degree).max();
    left = at::where(largest > 0, largest.reciprocal(), at::ones({}, doubles)).expand({nodes}).contiguous();
  }
  check_cuda(
      cuda::scale_entries(graph.row_ptr.const_data_ptr<std::int64_t>(),
                          graph.col.const_data_ptr<std::int32_t>(), graph.weight.const_data_ptr<float>(),
                          nodes, left.defined() ? left.const_data_ptr<double>() : nullptr,
                          right.defined() ? right.const_data_ptr<double>() : nullptr,
                          scaled.data_ptr<float>(), launch.stream),
      "normalise");
  return graph.with_weight(scaled);
}

at::Tensor to_dense_cuda(const Graph& graph) {
  const CudaLaunch launch(graph.row_ptr);
  const at::Tensor dense =
      at::zeros({graph.num_nodes(), graph.num_nodes()}, graph.weight.options().dtype(at::kDouble));
  const at::Tensor rows = rows_of_entries(graph, launch.stream).to(at::kLong);
  return dense.index_put({rows, graph.col.to(at::kLong)}, graph.weight.to(at::kDouble), /*accumulate=*/true);
}

at::Tensor morton_order_cuda(const at::Tensor& points) {
  const CudaLaunch launch(points);
  const at::Tensor ready = contiguous_points(points);
  const std::int64_t count = ready.size(0);
  constexpr int kKeyBits = 63;
  const at::Tensor partial = at::empty({6 * cuda::kBoxBlocks}, ready.options()),
                   key = at::empty({2, count}, ready.options().dtype(at::kLong)),
                   index = at::empty({2, count}, ready.options().dtype(at::kInt));
  auto* keys = reinterpret_cast<std::uint64_t*>(key.data_ptr<std::int64_t>());
  auto* indices = index.data_ptr<std::int32_t>();
  check_cuda(cuda::morton_keys(ready.const_data_ptr<float>(), count, static_cast<int>(ready.size(1)),
                               partial.data_ptr<float>(), keys, indices, launch.stream),
             "morton_order");
  using Sort = SortPairs<std::uint64_t>;
  const std::size_t bytes = Sort::workspace_bytes(count, kKeyBits);
  const at::Tensor workspace = bytes_on(ready, bytes);
  check_cuda(Sort::run(keys, indices, count, kKeyBits, keys + count, indices + count, workspace.data_ptr(),
                       bytes, launch.stream),
             "morton_order");
  return index.select(0, 1).to(at::kLong);
}

}  // namespace topomask
