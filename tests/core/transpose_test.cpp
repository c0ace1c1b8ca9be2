// Transposes, running sums and large arrays: the same on any number of threads.
#include "core/transpose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/running_sum.h"
#include "core/unfilled_vector.h"

namespace topomask {
namespace {

struct Threads {
  explicit Threads(int count) : before(num_threads()) { set_num_threads(count); }
  ~Threads() { set_num_threads(before); }
  int before;
};

struct Rows {
  std::vector<std::int64_t> row_ptr = {0};
  std::vector<std::int32_t> col;
};

// Rows of up to 40 entries, near the diagonal or anywhere, some of them empty; an entry may come twice.
Rows random_rows(std::int64_t num_rows, std::int64_t num_columns, bool local) {
  RandomStream random(7, 0);
  Rows rows;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t entries =
        num_columns == 0 || row % 7 == 3 ? 0 : static_cast<std::int64_t>(random.next_below(40));
    for (std::int64_t e = 0; e < entries; ++e) {
      const std::int64_t reach = local ? std::min<std::int64_t>(100, num_columns) : num_columns;
      const std::int64_t first = local ? std::min(row * num_columns / num_rows, num_columns - reach) : 0;
      rows.col.push_back(
          static_cast<std::int32_t>(first + static_cast<std::int64_t>(random.next_below(reach))));
    }
    rows.row_ptr.push_back(static_cast<std::int64_t>(rows.col.size()));
  }
  return rows;
}

using Entry = std::tuple<std::int32_t, std::int64_t, std::int64_t>;  // column, row, entry

TEST(Transpose, SortsEntriesByColumnThenRow) {
  for (const auto& [num_rows, num_columns] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                                              {1, 1},
                                              {5, 0},
                                              {30000, 30000},
                                              {20000, 70000},
                                              {40000, 11}}) {
    for (const bool local : {false, true}) {
      const Rows rows = random_rows(num_rows, num_columns, local);
      std::vector<Entry> expected;
      for (std::int64_t row = 0; row < num_rows; ++row) {
        for (std::int64_t e = rows.row_ptr[row]; e < rows.row_ptr[row + 1]; ++e) {
          expected.emplace_back(rows.col[e], row, e);
        }
      }
      std::sort(expected.begin(), expected.end());
      for (const int threads : {1, 2, 5}) {
        const Threads scope(threads);
        std::vector<std::int64_t> ptr(static_cast<std::size_t>(num_columns) + 1, -1);
        std::vector<Entry> found(rows.col.size());
        transpose_rows(num_rows, num_columns, rows.row_ptr.data(), rows.col.data(), ptr.data(),
                       [&](std::int64_t slot, std::int64_t row, std::int64_t entry) {
                         found[slot] = {rows.col[entry], row, entry};
                       });
        ASSERT_EQ(found, expected) << num_rows << " x " << num_columns << ", " << threads << " threads";
        ASSERT_EQ(ptr[0], 0);
        for (std::int64_t column = 0; column < num_columns; ++column) {
          const auto first = std::lower_bound(expected.begin(), expected.end(),
                                              Entry{static_cast<std::int32_t>(column + 1), 0, 0});
          ASSERT_EQ(ptr[column + 1], first - expected.begin());
        }
      }
    }
  }
}

TEST(Transpose, SharesManyEntriesAmongThreads) {
  const Threads scope(4);
  const Rows rows = random_rows(50000, 50000, true);
  std::vector<std::int64_t> ptr(50001);
  EXPECT_EQ(count_columns(50000, 50000, rows.row_ptr.data(), rows.col.data(), ptr.data()).size(), 4u);
}

TEST(RunningSum, IsThatOfOneThread) {
  for (const std::int64_t count : {0, 1, 2, 65536, 65537, 300001}) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(count));
    RandomStream random(3, 0);
    for (std::int64_t& value : values) value = static_cast<std::int64_t>(random.next_below(1000)) - 300;
    std::vector<std::int64_t> expected(values.size());
    std::partial_sum(values.begin(), values.end(), expected.begin());
    for (const int threads : {1, 3}) {
      const Threads scope(threads);
      std::vector<std::int64_t> sums = values;
      running_sum(sums.data(), count);
      EXPECT_EQ(sums, expected) << count << " values, " << threads << " threads";
    }
  }
}

TEST(UnfilledVector, IsAVector) {
  UnfilledVector<std::int32_t> values(std::size_t{5} << 20);
  std::iota(values.begin(), values.end(), 0);
  values.resize(values.size() + 3, 7);
  EXPECT_EQ(values[4'000'000], 4'000'000);
  EXPECT_EQ(values.back(), 7);
}

}  // namespace
}  // namespace topomask
