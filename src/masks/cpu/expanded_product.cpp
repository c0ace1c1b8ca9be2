#include "masks/cpu/expanded_product.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <memory>

#include "core/flops.h"
#include "core/parallel.h"

#if HWY_ARCH_X86_64
#include <immintrin.h>
#define TOPOMASK_AVX512 __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq")))
#endif

namespace topomask {

namespace {

constexpr std::int64_t kRowsPerTask = 1024;
constexpr std::int64_t kLanes = 16;

std::int64_t chunks_of(const SparseRows& product, std::int64_t row) {
  return (product.row_ptr[row + 1] - product.row_ptr[row] + kLanes - 1) / kLanes;
}

}  // namespace

#if HWY_ARCH_X86_64

Expansions make_expansions(const SparseRows& query, const SparseRows& key_columns,
                           const SparseRows& product) {
  if ((hwy::SupportedTargets() & HWY_AVX3) == 0) return {};
  std::vector<std::int64_t> first(static_cast<std::size_t>(query.num_rows) + 1, 0);
  std::int64_t pairs = 0;
  for (std::int64_t row = 0; row < query.num_rows; ++row) {
    const std::int64_t entries = query.row_ptr[row + 1] - query.row_ptr[row];
    first[row + 1] = first[row] + entries * chunks_of(product, row);
    for (std::int64_t p = query.row_ptr[row]; p < query.row_ptr[row + 1]; ++p) {
      pairs += key_columns.row_ptr[query.col[p] + 1] - key_columns.row_ptr[query.col[p]];
    }
  }
  if (first.back() > pairs) return {};
  Expansions result;
  result.mask.assign(static_cast<std::size_t>(first.back()), 0);
  parallel_for(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> place(static_cast<std::size_t>(product.num_rows));
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t chunks = chunks_of(product, row);
      for (std::int64_t p = product.row_ptr[row]; p < product.row_ptr[row + 1]; ++p) {
        place[product.col[p]] = p - product.row_ptr[row];
      }
      std::uint16_t* mask = result.mask.data() + first[row];
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

namespace {

// The values of the keys column by column, and a vector's width of zeros behind them.
std::unique_ptr<float[]> values_by_column(const SparseRows& columns, const float* value) {
  const std::int64_t nnz = columns.nnz();
  auto out = std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(nnz + kLanes));
  std::fill_n(out.get() + nnz, kLanes, 0.0f);
  parallel_for(nnz, 16 * kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) out[t] = value[columns.entry[t]];
  });
  return out;
}

TOPOMASK_AVX512 inline __m512 expand(std::uint16_t mask, const float* values) {
  __m512 loaded = _mm512_loadu_ps(values);
  asm("" : "+v"(loaded));  // expanding out of memory takes twice as long as out of a register
  return _mm512_maskz_expand_ps(mask, loaded);
}

// Up to this many chunks of a row of M are summed in registers.
constexpr int kMaxChunks = 6;

// kChunks chunks of one row of M. next[p]: where the column of the row's p-th entry goes on.
template <int kChunks>
TOPOMASK_AVX512 void add_columns(std::int64_t entries, const float* weight, const std::uint16_t* mask,
                                 std::int64_t mask_stride, const float** next, std::int64_t length,
                                 float* out) {
  __m512 sum[kChunks];
#pragma GCC unroll 8
  for (int c = 0; c < kChunks; ++c) sum[c] = _mm512_setzero_ps();
  for (std::int64_t p = 0; p < entries; ++p, mask += mask_stride) {
    const __m512 w = _mm512_set1_ps(weight[p]);
    const float* values = next[p];
#pragma GCC unroll 8
    for (int c = 0; c < kChunks; ++c) {
      // Not fused: the values are to be those of product_values, and of a GPU, to the last bit.
      sum[c] = _mm512_add_ps(sum[c], _mm512_mul_ps(w, expand(mask[c], values)));
      values += std::popcount(mask[c]);
    }
    next[p] = values;
  }
#pragma GCC unroll 8
  for (int c = 0; c < kChunks - 1; ++c) _mm512_storeu_ps(out + c * kLanes, sum[c]);
  const std::int64_t rest = std::min(kLanes, length - (kChunks - 1) * kLanes);
  _mm512_mask_storeu_ps(out + (kChunks - 1) * kLanes, static_cast<__mmask16>((1u << rest) - 1),
                        sum[kChunks - 1]);
}

using AddColumns = void (*)(std::int64_t, const float*, const std::uint16_t*, std::int64_t, const float**,
                            std::int64_t, float*);
constexpr AddColumns kAddColumns[kMaxChunks] = {add_columns<1>, add_columns<2>, add_columns<3>,
                                                add_columns<4>, add_columns<5>, add_columns<6>};

}  // namespace

void expanded_product_values(const Expansions& expansions, const SparseRows& query, const float* query_value,
                             const SparseRows& key_columns, const float* key_value, const SparseRows& product,
                             float* value) {
  const std::unique_ptr<float[]> column_value = values_by_column(key_columns, key_value);
  parallel_for(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<const float*> next;
    std::int64_t done = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t first = query.row_ptr[row], entries = query.row_ptr[row + 1] - first;
      if (static_cast<std::int64_t>(next.size()) < entries) next.resize(static_cast<std::size_t>(entries));
      for (std::int64_t p = 0; p < entries; ++p) {
        const std::int64_t column = query.col[first + p];
        next[p] = column_value.get() + key_columns.row_ptr[column];
        done += key_columns.row_ptr[column + 1] - key_columns.row_ptr[column];
      }
      const std::int64_t chunks = chunks_of(product, row);
      for (std::int64_t chunk = 0; chunk < chunks; chunk += kMaxChunks) {
        const std::int64_t place = product.row_ptr[row] + chunk * kLanes;
        kAddColumns[std::min<std::int64_t>(kMaxChunks, chunks - chunk) - 1](
            entries, query_value + first, expansions.mask.data() + expansions.first[row] + chunk, chunks,
            next.data(), product.row_ptr[row + 1] - place, value + place);
      }
    }
    count_multiply_adds(done);
  });
}

namespace {

TOPOMASK_AVX512 float dot_column(std::int64_t chunks, const std::uint16_t* mask, const float* values,
                                 const float* row) {
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t c = 0; c < chunks; ++c) {
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(row + c * kLanes), expand(mask[c], values), sum);
    values += std::popcount(mask[c]);
  }
  return _mm512_reduce_add_ps(sum);
}

}  // namespace

void expanded_product_backward(const Expansions& expansions, const SparseRows& query,
                               const SparseRows& key_columns, const float* key_value,
                               const SparseRows& product, const std::int64_t* mirror, const float* grad,
                               float* grad_query) {
  const std::unique_ptr<float[]> column_value = values_by_column(key_columns, key_value);
  parallel_for(query.num_rows, kRowsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> row_grad;
    std::int64_t done = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t chunks = chunks_of(product, row), first = product.row_ptr[row];
      const std::int64_t length = product.row_ptr[row + 1] - first;
      row_grad.assign(static_cast<std::size_t>(chunks * kLanes), 0.0f);
      for (std::int64_t p = 0; p < length; ++p) {
        row_grad[p] = grad[first + p] + (mirror == nullptr ? 0.0f : grad[mirror[first + p]]);
      }
      const std::uint16_t* mask = expansions.mask.data() + expansions.first[row];
      for (std::int64_t p = query.row_ptr[row]; p < query.row_ptr[row + 1]; ++p, mask += chunks) {
        const std::int64_t column = key_columns.row_ptr[query.col[p]];
        grad_query[p] = dot_column(chunks, mask, column_value.get() + column, row_grad.data());
        done += key_columns.row_ptr[query.col[p] + 1] - column;
      }
    }
    count_multiply_adds(done);
  });
}

#else

Expansions make_expansions(const SparseRows&, const SparseRows&, const SparseRows&) {
  return {};
}
void expanded_product_values(const Expansions&, const SparseRows&, const float*, const SparseRows&,
                             const float*, const SparseRows&, float*) {}
void expanded_product_backward(const Expansions&, const SparseRows&, const SparseRows&, const float*,
                               const SparseRows&, const std::int64_t*, const float*, float*) {}

#endif

}  // namespace topomask
