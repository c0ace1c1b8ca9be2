#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/column_attention.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "attention/cpu/column_attention.h"
#include "core/flops.h"
#include "core/parallel.h"
#include "core/vector_math-inl.h"

// What every instruction set shares.
#ifndef TOPOMASK_COLUMN_ATTENTION_SHARED_
#define TOPOMASK_COLUMN_ATTENTION_SHARED_
namespace topomask {

// Entries of A whose rows u are kept before they are added up: small enough for a cache.
constexpr std::int64_t kBlockEntries = 32768;
// Rows that a block may look at for each of its entries.
constexpr std::int64_t kRowsPerEntry = 4;
// A column with more rows or keys is shared by the threads.
constexpr std::int64_t kHubEntries = 4096;
constexpr std::int64_t kKeyChunk = 1024, kRowChunk = 256;
// The rows that a column needs are scattered in memory, so they are fetched this many entries ahead.
constexpr std::int64_t kAhead = 8;

// Rows of this many numbers are whole vectors of any instruction set.
template <class T>
constexpr std::int64_t padded(std::int64_t columns) {
  constexpr std::int64_t kVector = 64 / sizeof(T);
  return (columns + kVector - 1) / kVector * kVector;
}

struct EntrySpan {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};

// Memory for the operands of one thread. It grows, and is not released within a pass.
template <class T>
struct ColumnScratch {
  std::vector<T> x, y, z, pairs, state, edge;

  static T* room(std::vector<T>& from, std::int64_t size) {
    if (static_cast<std::int64_t>(from.size()) < size) from.resize(static_cast<std::size_t>(size));
    return from.data();
  }
};

template <class T>
struct ColumnState {
  T* state;  // [features, padded value columns]: Z_c
  T* ones;   // [features]: sum_j B_jc y_j
  T* extra;  // [padded value columns]: sum_j B_jc y_extra_j z_j
  static std::int64_t size(std::int64_t features, std::int64_t width) {
    return (features + 1) * width + padded<T>(features);
  }
  ColumnState(T* at, std::int64_t features, std::int64_t width)
      : state(at), ones(at + features * width), extra(ones + padded<T>(features)) {}
};

}  // namespace topomask
#endif

HWY_BEFORE_NAMESPACE();
namespace topomask::HWY_NAMESPACE {

// C[r, :] (+)= sum_k a[r * row_step + k * k_step] b[k, :] for kRows rows and kVectors vectors of columns.
template <int kRows, int kVectors, class T>
HWY_INLINE void product_block(const T* HWY_RESTRICT a, std::int64_t row_step, std::int64_t k_step,
                              std::int64_t k_count, const T* HWY_RESTRICT b, std::int64_t b_step,
                              T* HWY_RESTRICT c, std::int64_t c_step, bool accumulate) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  using V = hn::Vec<decltype(d)>;
  V sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? hn::LoadU(d, c + r * c_step + v * lanes) : hn::Zero(d);
  }
  for (std::int64_t k = 0; k < k_count; ++k) {
    V row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + k * b_step + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, a[r * row_step + k * k_step]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(factor, row[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_step + v * lanes);
  }
}

template <int kVectors, class T>
HWY_INLINE void product_panel(const T* a, std::int64_t row_step, std::int64_t k_step, std::int64_t rows,
                              std::int64_t k_count, const T* b, std::int64_t b_step, T* c,
                              std::int64_t c_step, bool accumulate) {
  std::int64_t r = 0;
  for (; r + 6 <= rows; r += 6)
    product_block<6, kVectors>(a + r * row_step, row_step, k_step, k_count, b, b_step, c + r * c_step, c_step,
                               accumulate);
  for (; r + 2 <= rows; r += 2)
    product_block<2, kVectors>(a + r * row_step, row_step, k_step, k_count, b, b_step, c + r * c_step, c_step,
                               accumulate);
  for (; r < rows; ++r)
    product_block<1, kVectors>(a + r * row_step, row_step, k_step, k_count, b, b_step, c + r * c_step, c_step,
                               accumulate);
}

// The product of small matrices: c [rows, width] (+)= a b, with b [k_count, width]; width: whole vectors.
template <class T>
HWY_INLINE void product(const T* a, std::int64_t row_step, std::int64_t k_step, std::int64_t rows,
                        std::int64_t k_count, const T* b, std::int64_t b_step, T* c, std::int64_t c_step,
                        std::int64_t width, bool accumulate) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // As many vectors side by side as the registers hold beside six rows.
  constexpr int kMost = hn::MaxLanes(d) * sizeof(T) >= 64 ? 4 : 2;
  std::int64_t column = 0;
  for (; column + kMost * lanes <= width; column += kMost * lanes)
    product_panel<kMost>(a, row_step, k_step, rows, k_count, b + column, b_step, c + column, c_step,
                         accumulate);
  for (; column < width; column += lanes)
    product_panel<1>(a, row_step, k_step, rows, k_count, b + column, b_step, c + column, c_step, accumulate);
}

template <class T>
struct Columns {
  const ColumnAttention<T>& p;
  std::int64_t features, columns, width;  // width: padded columns
  bool has_extra;

  explicit Columns(const ColumnAttention<T>& pass)
      : p(pass),
        features(pass.features),
        columns(pass.value_columns),
        width(padded<T>(pass.value_columns)),
        has_extra(pass.x_extra != nullptr || pass.y_extra != nullptr) {}

  T weight(std::int64_t position) const {
    const T own = p.key_value[p.key_columns.entry[position]];
    return p.key_scale == nullptr ? own : own * p.key_scale[p.key_columns.col[position]];
  }
  T extra_of_y(std::int64_t position) const {
    return p.y_extra == nullptr ? T{1} : p.y_extra[p.key_columns.col[position]];
  }
  T extra_of_x(std::int64_t position) const {
    return p.x_extra == nullptr ? T{1} : p.x_extra[p.row_columns.col[position]];
  }

  // Ask for what entry `position` will need. It may belong to a later column, which comes next.
  void fetch_x(std::int64_t position) const {
    if (position < p.row_columns.nnz())
      fetch_row(p.x + std::int64_t{p.row_columns.col[position]} * features, features);
  }
  void fetch_y(std::int64_t position) const {
    if (position >= p.key_columns.nnz()) return;
    __builtin_prefetch(p.key_value + p.key_columns.entry[position]);
    fetch_row(p.y + std::int64_t{p.key_columns.col[position]} * features, features);
  }
  void fetch_z(std::int64_t position) const {
    if (position < p.key_columns.nnz())
      fetch_row(p.z + std::int64_t{p.key_columns.col[position]} * columns, columns);
  }

  T* gather_x(const EntrySpan& rows, ColumnScratch<T>& scratch) const {
    T* const x = scratch.room(scratch.x, rows.size() * features);
    for (std::int64_t i = 0; i < rows.size(); ++i) {
      fetch_x(rows.begin + i + kAhead);
      std::memcpy(x + i * features, p.x + std::int64_t{p.row_columns.col[rows.begin + i]} * features,
                  static_cast<std::size_t>(features) * sizeof(T));
    }
    return x;
  }
  T* gather_z(const EntrySpan& keys, ColumnScratch<T>& scratch) const {
    T* const z = scratch.room(scratch.z, keys.size() * width);
    for (std::int64_t j = 0; j < keys.size(); ++j) {
      fetch_z(keys.begin + j + kAhead);
      std::memcpy(z + j * width, p.z + std::int64_t{p.key_columns.col[keys.begin + j]} * columns,
                  static_cast<std::size_t>(columns) * sizeof(T));
      std::fill(z + j * width + columns, z + (j + 1) * width, T{0});
    }
    return z;
  }

  // Pair by pair: P_ij = B_jc (<x_i, y_j> + extra), u = P z. Less work than by Z_c for few keys.
  void by_pairs(const EntrySpan& rows, const EntrySpan& keys, T* u, T* u_ones,
                ColumnScratch<T>& scratch) const {
    const std::int64_t count = keys.size(), key_width = padded<T>(count);
    T* const y = scratch.room(scratch.y, features * key_width);  // transposed and weighted
    std::fill(y, y + features * key_width, T{0});
    for (std::int64_t j = 0; j < count; ++j) {
      fetch_y(keys.begin + j + kAhead);
      const T own = weight(keys.begin + j);
      const T* const from = p.y + std::int64_t{p.key_columns.col[keys.begin + j]} * features;
      for (std::int64_t f = 0; f < features; ++f) y[f * key_width + j] = own * from[f];
    }
    const T* const z = gather_z(keys, scratch);
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += kRowChunk) {
      const EntrySpan some = {begin, std::min(rows.end, begin + kRowChunk)};
      const T* const x = gather_x(some, scratch);
      T* const pairs = scratch.room(scratch.pairs, some.size() * key_width);
      product(x, features, std::int64_t{1}, some.size(), features, y, key_width, pairs, key_width, key_width,
              false);
      for (std::int64_t i = 0; i < some.size(); ++i) {
        T* const row = pairs + i * key_width;
        if (has_extra) {
          const T own = extra_of_x(some.begin + i);
          for (std::int64_t j = 0; j < count; ++j)
            row[j] += own * extra_of_y(keys.begin + j) * weight(keys.begin + j);
        }
        if (u_ones != nullptr) {
          T sum = 0;
          for (std::int64_t j = 0; j < count; ++j) sum += row[j];
          u_ones[some.begin - rows.begin + i] = sum;
        }
      }
      product(pairs, key_width, std::int64_t{1}, some.size(), count, z, width,
              u + (some.begin - rows.begin) * width, width, width, false);
    }
  }

  // Adds keys to Z_c and to the sums beside it.
  void add_keys(const EntrySpan& keys, const ColumnState<T>& to, ColumnScratch<T>& scratch) const {
    for (std::int64_t begin = keys.begin; begin < keys.end; begin += kRowChunk) {
      const EntrySpan some = {begin, std::min(keys.end, begin + kRowChunk)};
      const T* const z = gather_z(some, scratch);
      T* const y = scratch.room(scratch.y, some.size() * features);
      for (std::int64_t j = 0; j < some.size(); ++j) {
        fetch_y(some.begin + j + kAhead);
        const T own = weight(some.begin + j);
        const T* const from = p.y + std::int64_t{p.key_columns.col[some.begin + j]} * features;
        for (std::int64_t f = 0; f < features; ++f) {
          y[j * features + f] = own * from[f];
          to.ones[f] += own * from[f];
        }
        if (has_extra) {
          const T factor = own * extra_of_y(some.begin + j);
          for (std::int64_t c = 0; c < width; ++c) to.extra[c] += factor * z[j * width + c];
        }
      }
      product(y, std::int64_t{1}, features, features, some.size(), z, width, to.state, width, width, true);
    }
  }

  void multiply_rows(const EntrySpan& rows, const ColumnState<T>& state, T* u, T* u_ones,
                     ColumnScratch<T>& scratch) const {
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += kRowChunk) {
      const EntrySpan some = {begin, std::min(rows.end, begin + kRowChunk)};
      const T* const x = gather_x(some, scratch);
      T* const to = u + (some.begin - rows.begin) * width;
      product(x, features, std::int64_t{1}, some.size(), features, state.state, width, to, width, width,
              false);
      for (std::int64_t i = 0; i < some.size(); ++i) {
        if (has_extra) {
          const T own = extra_of_x(some.begin + i);
          for (std::int64_t c = 0; c < width; ++c) to[i * width + c] += own * state.extra[c];
        }
        if (u_ones != nullptr)
          u_ones[some.begin - rows.begin + i] = dot_product(x + i * features, state.ones, features);
      }
    }
  }

  ColumnState<T> cleared_state(T* at) const {
    std::fill(at, at + ColumnState<T>::size(features, width), T{0});
    return ColumnState<T>(at, features, width);
  }

  // Returns the multiply-adds that it took.
  std::int64_t column(const EntrySpan& rows, const EntrySpan& keys, T* u, T* u_ones,
                      ColumnScratch<T>& scratch) const {
    const std::int64_t by_pair = rows.size() * keys.size() * (features + columns);
    const std::int64_t by_state = (rows.size() + keys.size()) * features * columns;
    if (by_pair <= by_state) {
      by_pairs(rows, keys, u, u_ones, scratch);
      return by_pair;
    }
    const ColumnState<T> state =
        cleared_state(scratch.room(scratch.state, ColumnState<T>::size(features, width)));
    add_keys(keys, state, scratch);
    multiply_rows(rows, state, u, u_ones, scratch);
    return by_state;
  }

  // Adds u of a block of columns to the rows [begin, end). `cursor`: the first entry of each row that was not
  // added yet; the block has those of columns before `column_end`.
  void add_rows(std::int64_t begin, std::int64_t end, std::int64_t column_end, const T* u, const T* u_ones,
                std::int64_t first_position, std::int64_t* cursor, const ColumnResult<T>& result) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    // A block has few entries of most rows, so the one to ask for is the first of a later row.
    const auto fetch_u = [&](std::int64_t i) {
      if (i < end && cursor[i] < p.rows.row_ptr[i + 1] && p.rows.col[cursor[i]] < column_end)
        fetch_row(u + (p.position[cursor[i]] - first_position) * width, columns);
    };
    for (std::int64_t i = begin; i < end; ++i) {
      fetch_u(i + kAhead);
      std::int64_t entry = cursor[i];
      const std::int64_t last = p.rows.row_ptr[i + 1];
      T* const out = result.out + i * columns;
      for (; entry < last && p.rows.col[entry] < column_end; ++entry) {
        const std::int64_t at = p.position[entry] - first_position;
        const T* const from = u + at * width;
        const T value = p.row_value[entry];
        std::int64_t c = 0;
        for (; c + lanes <= columns; c += lanes)
          hn::StoreU(hn::MulAdd(hn::Set(d, value), hn::LoadU(d, from + c), hn::LoadU(d, out + c)), d,
                     out + c);
        for (; c < columns; ++c) out[c] += value * from[c];
        if (result.ones != nullptr) result.ones[i] += value * u_ones[at];
        if (result.value_gradient != nullptr)
          result.value_gradient[entry] = dot_product(result.along + i * columns, from, columns);
      }
      cursor[i] = entry;
    }
  }
};

template <class T>
HWY_INLINE void run_columns(const ColumnAttention<T>& pass, const ColumnResult<T>& result) {
  const Columns<T> all(pass);
  const std::int64_t n = pass.rows.num_rows, num_columns = pass.row_columns.num_rows;
  std::fill(result.out, result.out + n * all.columns, T{0});
  if (result.ones != nullptr) std::fill(result.ones, result.ones + n, T{0});
  std::vector<std::int64_t> cursor(pass.rows.row_ptr, pass.rows.row_ptr + n);
  const std::int64_t* const row_ptr = pass.row_columns.row_ptr;
  const std::int64_t* const key_ptr = pass.key_columns.row_ptr;
  const auto rows_of_column = [&](std::int64_t c) { return EntrySpan{row_ptr[c], row_ptr[c + 1]}; };
  const auto keys_of_column = [&](std::int64_t c) { return EntrySpan{key_ptr[c], key_ptr[c + 1]}; };
  const auto is_hub = [&](std::int64_t c) {
    return rows_of_column(c).size() > 0 &&
           std::max(rows_of_column(c).size(), keys_of_column(c).size()) > kHubEntries;
  };
  std::vector<T> u, u_ones, states;
  for (std::int64_t first = 0; first < num_columns;) {
    const bool hub = is_hub(first);
    // The rows that the block adds to lie between these two. All of them are looked at, so a block whose rows
    // lie far apart gets more entries: the time stays linear in entries and rows.
    std::int64_t low = n, high = 0, end = first;
    do {
      if (const EntrySpan own_rows = rows_of_column(end); own_rows.size() > 0) {
        low = std::min<std::int64_t>(low, pass.row_columns.col[own_rows.begin]);
        high = std::max<std::int64_t>(high, pass.row_columns.col[own_rows.end - 1] + 1);
      }
      ++end;
    } while (!hub && end < num_columns && !is_hub(end) &&
             row_ptr[end + 1] - row_ptr[first] <= std::max(kBlockEntries, (high - low) / kRowsPerEntry));
    const std::int64_t first_position = row_ptr[first], entries = row_ptr[end] - first_position;
    T* const rows = ColumnScratch<T>::room(u, entries * all.width);
    T* const ones = result.ones == nullptr ? nullptr : ColumnScratch<T>::room(u_ones, entries);
    if (hub) {
      const EntrySpan own_rows = rows_of_column(first), keys = keys_of_column(first);
      const std::int64_t size = ColumnState<T>::size(all.features, all.width);
      const std::int64_t chunks = std::max<std::int64_t>(1, (keys.size() + kKeyChunk - 1) / kKeyChunk);
      T* const parts = ColumnScratch<T>::room(states, chunks * size);
      for_runs(chunks, 1, [&](std::int64_t begin, std::int64_t last) {
        ColumnScratch<T> scratch;
        for (std::int64_t chunk = begin; chunk < last; ++chunk) {
          const std::int64_t from = keys.begin + chunk * kKeyChunk;
          all.add_keys({from, std::min(keys.end, from + kKeyChunk)}, all.cleared_state(parts + chunk * size),
                       scratch);
        }
      });
      for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
        for (std::int64_t i = 0; i < size; ++i) parts[i] += parts[chunk * size + i];
      }
      const ColumnState<T> state(parts, all.features, all.width);
      for_runs((own_rows.size() + kRowChunk - 1) / kRowChunk, 1, [&](std::int64_t begin, std::int64_t last) {
        ColumnScratch<T> scratch;
        const EntrySpan some = {own_rows.begin + begin * kRowChunk,
                                std::min(own_rows.end, own_rows.begin + last * kRowChunk)};
        const std::int64_t at = some.begin - first_position;
        all.multiply_rows(some, state, rows + at * all.width, ones == nullptr ? nullptr : ones + at, scratch);
      });
      count_multiply_adds((own_rows.size() + keys.size()) * all.features * all.columns);
    } else {
      constexpr std::int64_t kColumnsOfRun = 16;
      for_runs(end - first, kColumnsOfRun, [&](std::int64_t begin, std::int64_t last) {
        ColumnScratch<T> scratch;
        std::int64_t multiply_adds = 0;
        for (std::int64_t c = first + begin; c < first + last; ++c) {
          const EntrySpan own_rows = rows_of_column(c);
          if (own_rows.size() == 0) continue;
          const std::int64_t at = own_rows.begin - first_position;
          multiply_adds += all.column(own_rows, keys_of_column(c), rows + at * all.width,
                                      ones == nullptr ? nullptr : ones + at, scratch);
        }
        count_multiply_adds(multiply_adds);
      });
    }
    constexpr std::int64_t kRowsOfRun = 2048;
    for_runs(std::max<std::int64_t>(0, high - low), kRowsOfRun, [&](std::int64_t begin, std::int64_t last) {
      all.add_rows(low + begin, low + last, end, rows, ones, first_position, cursor.data(), result);
    });
    first = end;
  }
}

void run_columns_float(const ColumnAttention<float>& pass, const ColumnResult<float>& result) {
  run_columns(pass, result);
}
void run_columns_double(const ColumnAttention<double>& pass, const ColumnResult<double>& result) {
  run_columns(pass, result);
}

}  // namespace topomask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace topomask {

HWY_EXPORT(run_columns_float);
HWY_EXPORT(run_columns_double);

template <class T>
void column_attention(const ColumnAttention<T>& pass, const ColumnResult<T>& result) {
  if (pass.rows.num_rows == 0) return;
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(run_columns_float)(pass, result);
  } else {
    HWY_DYNAMIC_DISPATCH(run_columns_double)(pass, result);
  }
  count_multiply_adds(pass.rows.nnz() * pass.value_columns);  // the sums over rows
}

template void column_attention(const ColumnAttention<float>&, const ColumnResult<float>&);
template void column_attention(const ColumnAttention<double>&, const ColumnResult<double>&);

}  // namespace topomask

#endif  // HWY_ONCE
