#include "masks/cpu/merge_rows.h"

#include <algorithm>
#include <limits>

#include "core/parallel.h"
#include "core/running_sum.h"

namespace topomask {

namespace {

constexpr std::int64_t kRowsAtOnce = 1024;
constexpr std::int64_t kNoColumn = std::numeric_limits<std::int64_t>::max();

struct Cursor {
  std::size_t part;
  std::int64_t next, end;
};

// Walks the union of one row in ascending order: found(column), then placed(part, entry) for each part that
// has it.
template <class Found, class Placed>
void merge_row(const std::vector<PlacedRows>& parts, std::int64_t row, std::vector<Cursor>& cursors,
               Found&& found, Placed&& placed) {
  cursors.clear();
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::int64_t local = row - parts[p].offset;
    if (local < 0 || local >= parts[p].num_rows) continue;
    cursors.push_back({p, parts[p].row_ptr[local], parts[p].row_ptr[local + 1]});
  }
  const auto column_of = [&](const Cursor& cursor) {
    const PlacedRows& part = parts[cursor.part];
    return cursor.next < cursor.end ? part.offset + part.col[cursor.next] : kNoColumn;
  };
  while (true) {
    std::int64_t column = kNoColumn;
    for (const Cursor& cursor : cursors) column = std::min(column, column_of(cursor));
    if (column == kNoColumn) return;
    found(column);
    for (Cursor& cursor : cursors)
      if (column_of(cursor) == column) placed(cursor.part, cursor.next++);
  }
}

}  // namespace

void count_merged_rows(std::int64_t num_nodes, const std::vector<PlacedRows>& parts, std::int64_t* row_ptr) {
  row_ptr[0] = 0;
  parallel_for(num_nodes, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Cursor> cursors;
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t count = 0;
      merge_row(
          parts, row, cursors, [&](std::int64_t) { ++count; }, [](std::size_t, std::int64_t) {});
      row_ptr[row + 1] = count;
    }
  });
  running_sum(row_ptr, num_nodes + 1);
}

void fill_merged_rows(std::int64_t num_nodes, const std::vector<PlacedRows>& parts,
                      const std::int64_t* row_ptr, std::int32_t* col,
                      const std::vector<std::int64_t*>& slot) {
  parallel_for(num_nodes, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Cursor> cursors;
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t out = row_ptr[row] - 1;
      merge_row(
          parts, row, cursors, [&](std::int64_t column) { col[++out] = static_cast<std::int32_t>(column); },
          [&](std::size_t part, std::int64_t entry) { slot[part][entry] = out; });
    }
  });
}

}  // namespace topomask
