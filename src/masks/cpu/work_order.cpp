#include "masks/cpu/work_order.h"

#include <algorithm>
#include <deque>
#include <numeric>

namespace topomask {

namespace {

constexpr std::int64_t kClusterRows = 128;  // rows that share a first-level cache on a GPU
constexpr std::int64_t kSmallPattern =
    8192;                                  // rows; below that everything is in the second-level cache anyway
constexpr std::int64_t kHubEntries = 256;  // a cluster does not grow through a row that touches everything
constexpr std::int64_t kSampledClusters = 32;
constexpr double kWorthIt = 0.8;  // of the distinct columns that the rows read as they stand

// Distinct columns that runs of kClusterRows rows read, over a sample of runs.
std::int64_t distinct_columns(std::int64_t num_rows, const std::int64_t* row_ptr, const std::int32_t* col,
                              const std::vector<std::int32_t>& order) {
  const std::int64_t clusters = num_rows / kClusterRows;
  std::vector<std::int32_t> columns;
  std::int64_t total = 0;
  for (std::int64_t sample = 0; sample < kSampledClusters; ++sample) {
    const std::int64_t first = sample * clusters / kSampledClusters * kClusterRows;
    columns.clear();
    for (std::int64_t i = first; i < first + kClusterRows; ++i) {
      if (row_ptr[order[i] + 1] - row_ptr[order[i]] > kHubEntries) continue;
      columns.insert(columns.end(), col + row_ptr[order[i]], col + row_ptr[order[i] + 1]);
    }
    std::sort(columns.begin(), columns.end());
    total += std::unique(columns.begin(), columns.end()) - columns.begin();
  }
  return total;
}

}  // namespace

std::vector<std::int32_t> work_order(std::int64_t num_rows, const std::int64_t* row_ptr,
                                     const std::int32_t* col) {
  if (num_rows < kSmallPattern) return {};
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(num_rows));
  std::vector<bool> taken(static_cast<std::size_t>(num_rows), false);
  std::deque<std::int32_t> border;  // met by earlier clusters, not yet in one
  std::vector<std::int32_t> queue;
  for (std::int64_t start = 0; start < num_rows; ++start) {
    if (taken[start]) continue;
    border.push_back(static_cast<std::int32_t>(start));
    while (!border.empty()) {
      const std::int32_t seed = border.front();
      border.pop_front();
      if (taken[seed]) continue;
      // Breadth first from the seed until the cluster is full.
      queue.assign(1, seed);
      std::int64_t size = 0;
      std::size_t next = 0;
      for (; next < queue.size() && size < kClusterRows; ++next) {
        const std::int32_t row = queue[next];
        if (taken[row]) continue;
        taken[row] = true;
        order.push_back(row);
        ++size;
        if (row_ptr[row + 1] - row_ptr[row] > kHubEntries) continue;
        for (std::int64_t entry = row_ptr[row]; entry < row_ptr[row + 1]; ++entry) {
          if (!taken[col[entry]]) queue.push_back(col[entry]);
        }
      }
      for (; next < queue.size(); ++next) {
        if (!taken[queue[next]]) border.push_back(queue[next]);
      }
    }
  }
  std::vector<std::int32_t> ascending(static_cast<std::size_t>(num_rows));
  std::iota(ascending.begin(), ascending.end(), 0);
  const auto before = static_cast<double>(distinct_columns(num_rows, row_ptr, col, ascending));
  const auto after = static_cast<double>(distinct_columns(num_rows, row_ptr, col, order));
  return after < kWorthIt * before ? order : std::vector<std::int32_t>();
}

}  // namespace topomask
