#include "core/transpose.h"

#include <algorithm>

#include "core/running_sum.h"

namespace topomask {

namespace {

constexpr std::int64_t kEntriesPerRun = std::int64_t{1} << 16;
constexpr std::int64_t kColumnsPerTask = std::int64_t{1} << 14;

// Of rows with about equally many entries. A run has a counter for each column between its first and its
// last: where these spread over all columns, few runs share the work.
std::vector<TransposedRun> cut_into_runs(std::int64_t num_rows, std::int64_t num_columns,
                                         const std::int64_t* row_ptr) {
  const std::int64_t entries = row_ptr[num_rows];
  const std::int64_t affordable = 2 * entries / std::max<std::int64_t>(1, num_columns);
  const std::int64_t count = std::clamp<std::int64_t>(std::min(affordable, entries / kEntriesPerRun), 1,
                                                      static_cast<std::int64_t>(num_threads()));
  std::vector<TransposedRun> runs(static_cast<std::size_t>(count));
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t* last = std::lower_bound(row_ptr, row_ptr + num_rows, entries * (r + 1) / count);
    runs[r].first_row = r == 0 ? 0 : runs[r - 1].last_row;
    runs[r].last_row = r + 1 == count ? num_rows : last - row_ptr;
  }
  return runs;
}

void count_run(const std::int64_t* row_ptr, const std::int32_t* col, TransposedRun& run) {
  const std::int32_t* begin = col + row_ptr[run.first_row];
  const std::int32_t* end = col + row_ptr[run.last_row];
  if (begin == end) return;
  const auto [low, high] = std::minmax_element(begin, end);
  run.low = *low;
  run.before.assign(static_cast<std::size_t>(*high - *low) + 1, 0);
  for (const std::int32_t* c = begin; c < end; ++c) ++run.before[*c - run.low];
}

}  // namespace

std::vector<TransposedRun> count_columns(std::int64_t num_rows, std::int64_t num_columns,
                                         const std::int64_t* row_ptr, const std::int32_t* col,
                                         std::int64_t* transposed_ptr) {
  std::vector<TransposedRun> runs = cut_into_runs(num_rows, num_columns, row_ptr);
  parallel_for(static_cast<std::int64_t>(runs.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) count_run(row_ptr, col, runs[r]);
  });
  transposed_ptr[0] = 0;
  parallel_for(num_columns, kColumnsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t* entries = transposed_ptr + 1;
    std::fill(entries + begin, entries + end, 0);
    for (TransposedRun& run : runs) {
      const std::int64_t high = run.low + static_cast<std::int64_t>(run.before.size());
      for (std::int64_t c = std::max<std::int64_t>(begin, run.low); c < std::min(end, high); ++c) {
        std::int32_t& count = run.before[c - run.low];
        const std::int64_t earlier = entries[c];
        entries[c] += count;
        count = static_cast<std::int32_t>(earlier);
      }
    }
  });
  running_sum(transposed_ptr, num_columns + 1);
  return runs;
}

}  // namespace topomask
