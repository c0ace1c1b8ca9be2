#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/feature_attention.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "attention/cpu/feature_attention.h"
#include "core/flops.h"
#include "core/parallel.h"
#include "core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topomask::HWY_NAMESPACE {

// out_i (+)= sum_p value_p factor[col_p] rows[col_p], out_norm_i likewise without the rows. With
// `row_factor`, the sum is multiplied by row_factor[i] instead, and the norm sums row_norm[col_p].
template <class T>
HWY_INLINE void weighted_rows(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const T* value,
                              const T* column_factor, const T* row_factor, const T* rows, const T* row_norm,
                              std::int64_t size, T* out, T* out_norm, std::vector<T>& weight) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = matrix.row_ptr[row];
    const std::int64_t count = matrix.row_ptr[row + 1] - first;
    const std::int32_t* index = matrix.col + first;
    if (static_cast<std::int64_t>(weight.size()) < count) weight.resize(static_cast<std::size_t>(count));
    T norm = 0;
    for (std::int64_t p = 0; p < count; ++p) {
      const T own = value[matrix.entry == nullptr ? first + p : matrix.entry[first + p]];
      weight[p] = own * (row_factor != nullptr ? row_factor[row] : column_factor[index[p]]);
      norm += row_norm != nullptr ? weight[p] * row_norm[index[p]] : weight[p];
    }
    const bool accumulate = row_factor != nullptr;
    out_norm[row] = accumulate ? out_norm[row] + norm : norm;
    indexed_sum([&](std::int64_t p) { return weight[p]; }, rows, index, count, size, accumulate,
                out + row * size);
  }
}

void weighted_rows_float(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const float* value,
                         const float* column_factor, const float* row_factor, const float* rows,
                         const float* row_norm, std::int64_t size, float* out, float* out_norm,
                         std::vector<float>& weight) {
  weighted_rows(matrix, begin, end, value, column_factor, row_factor, rows, row_norm, size, out, out_norm,
                weight);
}
void weighted_rows_double(const SparseRows& matrix, std::int64_t begin, std::int64_t end, const double* value,
                          const double* column_factor, const double* row_factor, const double* rows,
                          const double* row_norm, std::int64_t size, double* out, double* out_norm,
                          std::vector<double>& weight) {
  weighted_rows(matrix, begin, end, value, column_factor, row_factor, rows, row_norm, size, out, out_norm,
                weight);
}

}  // namespace topomask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace topomask {

HWY_EXPORT(weighted_rows_float);
HWY_EXPORT(weighted_rows_double);

namespace {

template <class T>
void pass(const SparseRows& matrix, const T* value, const T* column_factor, const T* row_factor,
          const T* rows, const T* row_norm, std::int64_t size, T* out, T* out_norm) {
  const std::int64_t pieces = 4 * std::int64_t{num_threads()};
  parallel_for(pieces, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<T> weight(64);
    for (std::int64_t piece = first; piece < last; ++piece) {
      const std::int64_t begin = balanced_row(matrix, piece, pieces),
                         end = balanced_row(matrix, piece + 1, pieces);
      if constexpr (std::is_same_v<T, float>) {
        HWY_DYNAMIC_DISPATCH(weighted_rows_float)
        (matrix, begin, end, value, column_factor, row_factor, rows, row_norm, size, out, out_norm, weight);
      } else {
        HWY_DYNAMIC_DISPATCH(weighted_rows_double)
        (matrix, begin, end, value, column_factor, row_factor, rows, row_norm, size, out, out_norm, weight);
      }
    }
  });
  count_multiply_adds(matrix.nnz() * (size + 1));
  count_other_flops(matrix.nnz());
}

}  // namespace

template <class T>
void feature_attention_forward(const FeatureAttention<T>& head, T* numerator, T* normaliser, T* scratch) {
  const std::int64_t n = head.query.num_rows;
  if (n == 0) return;
  T* gathered = scratch;                                // S: [N, value_columns]
  T* gathered_norm = scratch + n * head.value_columns;  // its column of ones: [N]
  for (std::int64_t c = 0; c < head.features; ++c) {
    pass<T>(head.key_columns, head.key_value, head.k + c * n, nullptr, head.v, nullptr, head.value_columns,
            gathered, gathered_norm);
    pass<T>(head.query, head.query_value, nullptr, head.q + c * n, gathered, gathered_norm,
            head.value_columns, numerator, normaliser);
  }
}

template void feature_attention_forward(const FeatureAttention<float>&, float*, float*, float*);
template void feature_attention_forward(const FeatureAttention<double>&, double*, double*, double*);

}  // namespace topomask

#endif  // HWY_ONCE
