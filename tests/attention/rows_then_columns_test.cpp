// Every row and column once, and no column before the rows that it meets.
#include "attention/cpu/rows_then_columns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "masks/cpu/pattern.h"

namespace topomask {
namespace {

// A square matrix whose rows have up to `most` entries within `reach` of the diagonal, some of them none.
struct Matrix {
  std::vector<std::int64_t> ptr = {0}, transposed_ptr, entry;
  std::vector<std::int32_t> col, transposed_row;

  Matrix(std::int64_t n, std::int64_t most, std::int64_t reach) {
    std::uint64_t state = 3;
    for (std::int64_t row = 0; row < n; ++row) {
      state = derive_seed(state, 1);
      const auto count = static_cast<std::int64_t>(state % static_cast<std::uint64_t>(most + 1));
      const std::int64_t first = std::max<std::int64_t>(0, row - reach), last = std::min(n, row + reach + 1);
      const std::int64_t step = std::max<std::int64_t>(1, (last - first) / std::max<std::int64_t>(1, count));
      for (std::int64_t c = first; c < last && count > 0; c += step)
        col.push_back(static_cast<std::int32_t>(c));
      ptr.push_back(static_cast<std::int64_t>(col.size()));
    }
    transposed_ptr.resize(ptr.size());
    entry.resize(col.size());
    transposed_row.resize(col.size());
    transpose_pattern(n, n, ptr.data(), col.data(), transposed_ptr.data(), transposed_row.data(),
                      entry.data());
  }
  std::int64_t size() const { return static_cast<std::int64_t>(ptr.size()) - 1; }
  SparseRows rows() const { return {size(), ptr.data(), col.data(), nullptr}; }
  SparseRows columns() const { return {size(), transposed_ptr.data(), transposed_row.data(), entry.data()}; }
};

class RowsThenColumns : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_num_threads(GetParam()); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

TEST_P(RowsThenColumns, KeepTheirOrder) {
  for (const std::int64_t n : {0, 1, 7, 3000, 20000}) {
    for (const std::int64_t reach : {0, 3, 500, 20000}) {
      SCOPED_TRACE(testing::Message() << n << " rows, reach " << reach);
      const Matrix matrix(n, 12, reach);
      std::vector<std::atomic<int>> row_done(static_cast<std::size_t>(n)), column_done(row_done.size());
      std::atomic<int> too_early = 0, interleaved = 0, rows_left = static_cast<int>(n);
      rows_then_columns(
          matrix.rows(), matrix.columns(),
          [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) ++row_done[row];
            rows_left -= static_cast<int>(end - begin);
          },
          [&](std::int64_t begin, std::int64_t end) {
            if (rows_left > 0) ++interleaved;
            for (std::int64_t column = begin; column < end; ++column) {
              ++column_done[column];
              for (std::int64_t p = matrix.transposed_ptr[column]; p < matrix.transposed_ptr[column + 1];
                   ++p) {
                if (row_done[matrix.transposed_row[p]] != 1) ++too_early;
              }
            }
          });
      EXPECT_EQ(too_early, 0);
      for (std::int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(row_done[i], 1) << i;
        ASSERT_EQ(column_done[i], 1) << i;
      }
      // On a local matrix columns do not wait for the last row.
      if (GetParam() == 1 && n == 20000 && reach <= 500) {
        EXPECT_GT(interleaved, 0);
      }
    }
  }
}

TEST_P(RowsThenColumns, PassOnWhatARunThrows) {
  const Matrix matrix(20000, 12, 50);
  EXPECT_THROW(rows_then_columns(
                   matrix.rows(), matrix.columns(),
                   [](std::int64_t begin, std::int64_t) {
                     if (begin == 0) throw std::runtime_error("no memory");
                   },
                   [](std::int64_t, std::int64_t) {}),
               std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Threads, RowsThenColumns, ::testing::Values(1, 2, 5));

}  // namespace
}  // namespace topomask
