#include "masks/cpu/expanded_product.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <vector>

#include "core/avx512.h"
#include "core/flops.h"
#include "core/parallel.h"
#include "core/running_sum.h"

namespace topomask {

namespace {

constexpr std::int64_t kRowsPerTask = 1024;
constexpr std::int64_t kLanes = 16;

std::int64_t chunks_of(const SparseRows& product, std::int64_t row) {
  return (product.row_ptr[row + 1] - product.row_ptr[row] + kLanes - 1) / kLanes;
}

}  // namespace

#if HWY_ARCH_X86_64

namespace {

UnfilledVector<std::int32_t> short_entries(const SparseRows& rows) {
  UnfilledVector<std::int32_t> entries(static_cast<std::size_t>(rows.nnz()));
  parallel_for(rows.nnz(), 16 * kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::copy(rows.entry + begin, rows.entry + end, entries.data() + begin);
  });
  return entries;
}

}  // namespace

Expansions make_expansions(const SparseRows& query, const SparseRows& key_columns, const SparseRows& product,
                           const SparseRows* product_columns) {
  if (!has_avx512()) return {};
  if (std::max({query.nnz(), key_columns.nnz(), product.nnz()}) > std::numeric_limits<std::int32_t>::max()) {
    return {};
  }
  Expansions result;
  UnfilledVector<std::int64_t> first(static_cast<std::size_t>(query.num_rows) + 1);
  first[0] = 0;
  result.column.resize(static_cast<std::size_t>(query.nnz()));
  std::atomic<std::int64_t> pairs = 0;
  parallel_for(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t own_pairs = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t entries = query.row_ptr[row + 1] - query.row_ptr[row];
      first[row + 1] = entries * chunks_of(product, row);
      for (std::int64_t p = query.row_ptr[row]; p < query.row_ptr[row + 1]; ++p) {
        const std::int64_t column = key_columns.row_ptr[query.col[p]];
        result.column[p] = static_cast<std::int32_t>(column);
        own_pairs += key_columns.row_ptr[query.col[p] + 1] - column;
      }
    }
    pairs += own_pairs;
  });
  result.pairs = pairs;
  running_sum(first.data(), query.num_rows + 1);
  if (first.back() > result.pairs) return {};
  result.key_entry = short_entries(key_columns);
  // The transpose of a symmetric pattern lists a row's entries in the row's own order: its p-th entry is the
  // mirror image of the pattern's own.
  if (product_columns != nullptr) result.mirror = short_entries(*product_columns);
  result.mask.resize(static_cast<std::size_t>(first.back()));
  parallel_for(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> place(static_cast<std::size_t>(product.columns()));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t chunks = chunks_of(product, row);
      for (std::int64_t p = product.row_ptr[row]; p < product.row_ptr[row + 1]; ++p) {
        place[product.col[p]] = p - product.row_ptr[row];
      }
      std::uint16_t* mask = result.mask.data() + first[row];
      std::fill(mask, result.mask.data() + first[row + 1], std::uint16_t{0});
      for (std::int64_t p = query.row_ptr[row]; p < query.row_ptr[row + 1]; ++p, mask += chunks) {
        for (std::int64_t t = key_columns.row_ptr[query.col[p]]; t < key_columns.row_ptr[query.col[p] + 1];
             ++t) {
          const std::int64_t at = place[key_columns.col[t]];
          mask[at / kLanes] = static_cast<std::uint16_t>(mask[at / kLanes] | 1u << (at % kLanes));
        }
      }
    }
  });
  result.first = std::move(first);
  return result;
}

std::int64_t column_values_size(const Expansions& expansions) {
  return static_cast<std::int64_t>(expansions.key_entry.size()) + kLanes;
}

void column_values(const Expansions& expansions, const float* key_value, float* column_value) {
  const auto nnz = static_cast<std::int64_t>(expansions.key_entry.size());
  std::fill_n(column_value + nnz, kLanes, 0.0f);
  for_runs(nnz, 16 * kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) column_value[t] = key_value[expansions.key_entry[t]];
  });
}

namespace {

TOPOMASK_AVX512 inline __m512 expand(std::uint16_t mask, const float* values) {
  __m512 loaded = _mm512_loadu_ps(values);
  asm("" : "+v"(loaded));  // expanding out of memory takes twice as long as out of a register
  return _mm512_maskz_expand_ps(mask, loaded);
}

// Up to this many chunks of a row of M are summed in registers.
constexpr int kMaxChunks = 6;

// kChunks chunks of one row of M. column[p]: where the column of the row's p-th entry begins, or goes on,
// among the values; next[p] gets where it goes on after these chunks, unless null.
template <int kChunks>
TOPOMASK_AVX512 void add_columns(std::int64_t entries, const float* weight, const std::uint16_t* mask,
                                 std::int64_t mask_stride, const float* column_value,
                                 const std::int32_t* column, std::int32_t* next, std::int64_t length,
                                 float* out) {
  __m512 sum[kChunks];
#pragma GCC unroll 8
  for (int c = 0; c < kChunks; ++c) sum[c] = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < entries; ++p, mask += mask_stride) {
    const __m512 w = _mm512_set1_ps(weight[p]);
    const float* values = column_value + column[p];
#pragma GCC unroll 8
    for (int c = 0; c < kChunks; ++c) {
      // Not fused: the values are to be those of product_values, and of a GPU, to the last bit.
      sum[c] = _mm512_add_ps(sum[c], _mm512_mul_ps(w, expand(mask[c], values)));
      values += std::popcount(mask[c]);
    }
    if (next != nullptr) next[p] = static_cast<std::int32_t>(values - column_value);
  }
#pragma GCC unroll 8
  for (int c = 0; c < kChunks - 1; ++c) _mm512_storeu_ps(out + c * kLanes, sum[c]);
  const std::int64_t rest = std::min(kLanes, length - (kChunks - 1) * kLanes);
  _mm512_mask_storeu_ps(out + (kChunks - 1) * kLanes, static_cast<__mmask16>((1u << rest) - 1),
                        sum[kChunks - 1]);
}

using AddColumns = void (*)(std::int64_t, const float*, const std::uint16_t*, std::int64_t, const float*,
                            const std::int32_t*, std::int32_t*, std::int64_t, float*);
constexpr AddColumns kAddColumns[kMaxChunks] = {add_columns<1>, add_columns<2>, add_columns<3>,
                                                add_columns<4>, add_columns<5>, add_columns<6>};

}  // namespace

void expanded_product_values(const Expansions& expansions, const SparseRows& query, const float* query_value,
                             const float* column_value, const SparseRows& product, float* value) {
  for_runs(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> next;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = query.row_ptr[row], entries = query.row_ptr[row + 1] - first;
      const std::int64_t chunks = chunks_of(product, row);
      const std::int32_t* column = expansions.column.data() + first;
      if (chunks > kMaxChunks) {
        next.assign(column, column + entries);
        column = next.data();
      }
      for (std::int64_t chunk = 0; chunk < chunks; chunk += kMaxChunks) {
        const std::int64_t place = product.row_ptr[row] + chunk * kLanes;
        kAddColumns[std::min<std::int64_t>(kMaxChunks, chunks - chunk) - 1](
            entries, query_value + first, expansions.mask.data() + expansions.first[row] + chunk, chunks,
            column_value, column, chunks > kMaxChunks ? next.data() : nullptr,
            product.row_ptr[row + 1] - place, value + place);
      }
    }
  });
  count_multiply_adds(expansions.pairs);
}

namespace {

// The sums of the lanes of four vectors.
TOPOMASK_AVX512 inline __m128 sums_of_lanes(const __m512 (&x)[4]) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
  const __m512 abcd = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(abcd), _mm512_extractf32x8_ps(abcd, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// out[p] = the product of the p-th column and a row of kChunks chunks, which stays in registers.
template <int kChunks>
TOPOMASK_AVX512 void dot_columns(std::int64_t entries, const std::uint16_t* mask, const float* column_value,
                                 const std::int32_t* column, const float* row, float* out) {
  __m512 chunk[kChunks];
#pragma GCC unroll 8
  for (int c = 0; c < kChunks; ++c) chunk[c] = _mm512_loadu_ps(row + c * kLanes);
  for (std::int64_t p = 0; p < entries; p += 4) {
    __m512 sum[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const std::int64_t at = std::min(p + r, entries - 1);
      const std::uint16_t* places = mask + at * kChunks;
      const float* values = column_value + column[at];
      sum[r] = _mm512_setzero_ps();
#pragma GCC unroll 8
      for (int c = 0; c < kChunks; ++c) {
        sum[r] = _mm512_fmadd_ps(chunk[c], expand(places[c], values), sum[r]);
        values += std::popcount(places[c]);
      }
    }
    const auto wanted = static_cast<__mmask8>((1u << std::min<std::int64_t>(4, entries - p)) - 1);
    _mm_mask_storeu_ps(out + p, wanted, sums_of_lanes(sum));
  }
}

using DotColumns = void (*)(std::int64_t, const std::uint16_t*, const float*, const std::int32_t*,
                            const float*, float*);
constexpr DotColumns kDotColumns[kMaxChunks] = {dot_columns<1>, dot_columns<2>, dot_columns<3>,
                                                dot_columns<4>, dot_columns<5>, dot_columns<6>};

// The same for rows of any length.
TOPOMASK_AVX512 void dot_columns_of_long_row(std::int64_t chunks, std::int64_t entries,
                                             const std::uint16_t* mask, const float* column_value,
                                             const std::int32_t* column, const float* row, float* out) {
  for (std::int64_t p = 0; p < entries; ++p, mask += chunks) {
    const float* values = column_value + column[p];
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t c = 0; c < chunks; ++c) {
      sum = _mm512_fmadd_ps(_mm512_loadu_ps(row + c * kLanes), expand(mask[c], values), sum);
      values += std::popcount(mask[c]);
    }
    out[p] = _mm512_reduce_add_ps(sum);
  }
}

}  // namespace

void expanded_product_backward(const Expansions& expansions, const SparseRows& query,
                               const float* column_value, const SparseRows& product, bool square,
                               const float* grad, float* grad_query) {
  for_runs(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row_grad;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t chunks = chunks_of(product, row), place = product.row_ptr[row];
      const std::int64_t length = product.row_ptr[row + 1] - place;
      row_grad.assign(static_cast<std::size_t>(chunks * kLanes), 0.0f);
      for (std::int64_t p = 0; p < length; ++p) {
        row_grad[p] = grad[place + p] + (square ? grad[expansions.mirror[place + p]] : 0.0f);
      }
      const std::int64_t first = query.row_ptr[row], entries = query.row_ptr[row + 1] - first;
      const std::uint16_t* mask = expansions.mask.data() + expansions.first[row];
      const std::int32_t* column = expansions.column.data() + first;
      if (chunks > kMaxChunks) {
        dot_columns_of_long_row(chunks, entries, mask, column_value, column, row_grad.data(),
                                grad_query + first);
      } else if (chunks > 0) {
        kDotColumns[chunks - 1](entries, mask, column_value, column, row_grad.data(), grad_query + first);
      }
    }
  });
  count_multiply_adds(expansions.pairs);
}

#else

Expansions make_expansions(const SparseRows&, const SparseRows&, const SparseRows&, const SparseRows*) {
  return {};
}
std::int64_t column_values_size(const Expansions&) {
  return 0;
}
void column_values(const Expansions&, const float*, float*) {}
void expanded_product_values(const Expansions&, const SparseRows&, const float*, const float*,
                             const SparseRows&, float*) {}
void expanded_product_backward(const Expansions&, const SparseRows&, const float*, const SparseRows&, bool,
                               const float*, float*) {}

#endif

}  // namespace topomask
