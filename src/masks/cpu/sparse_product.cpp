#include "masks/cpu/sparse_product.h"

#include <algorithm>
#include <vector>

#include "core/flops.h"
#include "core/interruption.h"
#include "core/parallel.h"
#include "core/running_sum.h"

namespace topomask {

namespace {

constexpr std::int64_t kRowsPerTask = 1024;

std::int64_t position(const SparseRows& rows, std::int64_t p) {
  return rows.entry == nullptr ? p : rows.entry[p];
}

// The columns of one row of the product, unordered. `seen[j]` holds the last row that met j.
void collect_row(const SparseRows& query, const SparseRows& key_columns, std::int64_t row,
                 std::vector<std::int64_t>& seen, std::vector<std::int32_t>& out) {
  for (std::int64_t p = query.row_ptr[row]; p < query.row_ptr[row + 1]; ++p) {
    const std::int64_t q = query.col[p];
    for (std::int64_t t = key_columns.row_ptr[q]; t < key_columns.row_ptr[q + 1]; ++t) {
      const std::int32_t j = key_columns.col[t];
      if (seen[j] == row) continue;
      seen[j] = row;
      out.push_back(j);
    }
  }
}

}  // namespace

ProductPattern product_pattern(const SparseRows& query, const SparseRows& key_columns) {
  const std::int64_t num_rows = query.num_rows;
  const std::int64_t tasks = (num_rows + kRowsPerTask - 1) / kRowsPerTask;
  std::vector<std::vector<std::int32_t>> pieces(static_cast<std::size_t>(tasks));
  ProductPattern pattern;
  pattern.row_ptr.resize(static_cast<std::size_t>(num_rows) + 1);
  pattern.row_ptr[0] = 0;
  parallel_for(tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> seen(static_cast<std::size_t>(key_columns.columns()), -1);
    for (std::int64_t task = begin; task < end; ++task) {
      std::vector<std::int32_t>& piece = pieces[task];
      poll_interruption();
      for (std::int64_t row = task * kRowsPerTask; row < std::min(num_rows, (task + 1) * kRowsPerTask);
           ++row) {
        const std::size_t first = piece.size();
        collect_row(query, key_columns, row, seen, piece);
        std::sort(piece.begin() + static_cast<std::ptrdiff_t>(first), piece.end());
        pattern.row_ptr[row + 1] = static_cast<std::int64_t>(piece.size() - first);
      }
    }
  });
  running_sum(pattern.row_ptr.data(), num_rows + 1);
  pattern.col.resize(static_cast<std::size_t>(pattern.row_ptr.back()));
  parallel_for(tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      std::copy(pieces[task].begin(), pieces[task].end(),
                pattern.col.begin() + pattern.row_ptr[task * kRowsPerTask]);
    }
  });
  return pattern;
}

double estimate_product_nnz(const SparseRows& query, const SparseRows& key_columns, std::int64_t sample) {
  const std::int64_t num_rows = query.num_rows;
  sample = std::min(sample, num_rows);
  if (sample == 0) return 0;
  std::vector<std::int64_t> seen(static_cast<std::size_t>(key_columns.columns()), -1);
  std::vector<std::int32_t> row_columns;
  double total = 0;
  for (std::int64_t i = 0; i < sample; ++i) {
    row_columns.clear();
    collect_row(query, key_columns, i * num_rows / sample, seen, row_columns);
    total += static_cast<double>(row_columns.size());
  }
  return total / static_cast<double>(sample) * static_cast<double>(num_rows);
}

template <class T>
void product_values(const SparseRows& query, const T* query_value, const SparseRows& key_columns,
                    const T* key_value, const SparseRows& product, T* value) {
  parallel_for(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> row_sum(static_cast<std::size_t>(product.columns()), T{0});
    std::int64_t done = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      if (row % kRowsPerTask == 0) poll_interruption();
      for (std::int64_t p = query.row_ptr[row]; p < query.row_ptr[row + 1]; ++p) {
        const T weight = query_value[position(query, p)];
        const std::int64_t first = key_columns.row_ptr[query.col[p]],
                           last = key_columns.row_ptr[query.col[p] + 1];
        for (std::int64_t t = first; t < last; ++t) {
          row_sum[key_columns.col[t]] += weight * key_value[position(key_columns, t)];
        }
        done += last - first;
      }
      for (std::int64_t p = product.row_ptr[row]; p < product.row_ptr[row + 1]; ++p) {
        value[position(product, p)] = row_sum[product.col[p]];
        row_sum[product.col[p]] = T{0};
      }
    }
    count_multiply_adds(done);
  });
}

template <class T>
void product_backward(const SparseRows& query, const SparseRows& key_columns, const T* key_value,
                      const SparseRows& product, const T* grad, T* grad_query) {
  parallel_for(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> row_grad(static_cast<std::size_t>(product.columns()), T{0});
    std::int64_t done = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      if (row % kRowsPerTask == 0) poll_interruption();
      for (std::int64_t p = product.row_ptr[row]; p < product.row_ptr[row + 1]; ++p) {
        row_grad[product.col[p]] = grad[position(product, p)];
      }
      // Every j that is read below lies in the pattern of the row, so no stale gradient is ever seen.
      for (std::int64_t p = query.row_ptr[row]; p < query.row_ptr[row + 1]; ++p) {
        T sum = 0;
        const std::int64_t first = key_columns.row_ptr[query.col[p]],
                           last = key_columns.row_ptr[query.col[p] + 1];
        for (std::int64_t t = first; t < last; ++t) {
          sum += row_grad[key_columns.col[t]] * key_value[position(key_columns, t)];
        }
        grad_query[position(query, p)] = sum;
        done += last - first;
      }
    }
    count_multiply_adds(done);
  });
}

template void product_values(const SparseRows&, const float*, const SparseRows&, const float*,
                             const SparseRows&, float*);
template void product_values(const SparseRows&, const double*, const SparseRows&, const double*,
                             const SparseRows&, double*);
template void product_backward(const SparseRows&, const SparseRows&, const float*, const SparseRows&,
                               const float*, float*);
template void product_backward(const SparseRows&, const SparseRows&, const double*, const SparseRows&,
                               const double*, double*);

}  // namespace topomask
