#include "attention/cpu/rows_then_columns.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/parallel.h"

namespace topomask {

namespace {

// Runs of equal work: enough for all threads, and small enough for what some of them touch to stay in the
// caches.
std::int64_t number_of_runs(const SparseRows& matrix) {
  constexpr std::int64_t kMostNonzeros = 8192;
  return std::max(runs_for_threads(matrix), matrix.nnz() / kMostNonzeros);
}

std::vector<std::int64_t> bounds_of_runs(const SparseRows& matrix) {
  const std::int64_t runs = number_of_runs(matrix);
  std::vector<std::int64_t> bounds(static_cast<std::size_t>(runs) + 1);
  for (std::int64_t i = 0; i <= runs; ++i) bounds[i] = balanced_row(matrix, i, runs);
  return bounds;
}

struct Run {
  bool columns = false;
  std::int64_t begin = 0, end = 0;
  std::int64_t first_needed = 0, last_needed = -1;  // runs of rows
};

// The runs of rows that columns [begin, end) meet.
Run run_of_columns(const SparseRows& transposed, std::int64_t begin, std::int64_t end,
                   const std::vector<std::int64_t>& row_bounds) {
  std::int64_t first_row = transposed.columns(), last_row = -1;
  for (std::int64_t column = begin; column < end; ++column) {
    const std::int64_t first = transposed.row_ptr[column], last = transposed.row_ptr[column + 1];
    if (first == last) continue;
    first_row = std::min<std::int64_t>(first_row, transposed.col[first]);
    last_row = std::max<std::int64_t>(last_row, transposed.col[last - 1]);
  }
  Run run{true, begin, end};
  if (last_row < 0) return run;
  const auto run_of = [&](std::int64_t row) {
    return std::upper_bound(row_bounds.begin(), row_bounds.end(), row) - row_bounds.begin() - 1;
  };
  run.first_needed = run_of(first_row);
  run.last_needed = run_of(last_row);
  return run;
}

}  // namespace

void rows_then_columns(const SparseRows& matrix, const SparseRows& transposed,
                       const std::function<void(std::int64_t, std::int64_t)>& rows,
                       const std::function<void(std::int64_t, std::int64_t)>& columns) {
  if (matrix.num_rows == 0) return;
  const std::vector<std::int64_t> row_bounds = bounds_of_runs(matrix),
                                  column_bounds = bounds_of_runs(transposed);
  const auto row_runs = static_cast<std::int64_t>(row_bounds.size()) - 1;
  const auto column_runs = static_cast<std::int64_t>(column_bounds.size()) - 1;
  std::vector<Run> by_column(static_cast<std::size_t>(column_runs));
  for_runs(column_runs, 1, [&](std::int64_t i, std::int64_t) {
    by_column[i] = run_of_columns(transposed, column_bounds[i], column_bounds[i + 1], row_bounds);
  });
  // A run of columns comes some runs after the last rows that it needs, which other threads may still
  // compute.
  std::vector<std::vector<Run>> after(static_cast<std::size_t>(row_runs));
  for (const Run& run : by_column) {
    const std::int64_t place =
        std::min(row_runs - 1, std::max<std::int64_t>(0, run.last_needed) + num_threads() - 1);
    after[place].push_back(run);
  }
  std::vector<Run> order;
  for (std::int64_t i = 0; i < row_runs; ++i) {
    order.push_back({false, row_bounds[i], row_bounds[i + 1], i, i});
    order.insert(order.end(), after[i].begin(), after[i].end());
  }
  std::vector<std::atomic<bool>> finished(static_cast<std::size_t>(row_runs));
  struct SetAtEnd {  // also if the run throws, or others would wait for it forever
    std::atomic<bool>& flag;
    ~SetAtEnd() { flag.store(true, std::memory_order_release); }
  };
  // Runs are taken in order, and those of rows wait for nothing: whatever a run of columns waits for is under
  // way.
  for_runs(static_cast<std::int64_t>(order.size()), 1, [&](std::int64_t i, std::int64_t) {
    const Run& run = order[i];
    if (!run.columns) {
      const SetAtEnd set{finished[run.first_needed]};
      rows(run.begin, run.end);
      return;
    }
    for (std::int64_t needed = run.first_needed; needed <= run.last_needed; ++needed) {
      while (!finished[needed].load(std::memory_order_acquire)) std::this_thread::yield();
    }
    columns(run.begin, run.end);
  });
}

}  // namespace topomask
