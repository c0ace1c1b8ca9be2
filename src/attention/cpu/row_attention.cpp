#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/row_attention.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/cpu/row_attention.h"
#include "core/flops.h"
#include "core/parallel.h"
#include "core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topomask::HWY_NAMESPACE {

// exp(scale * dot - max) in place; returns the maximum of scale * dot.
template <class T>
HWY_INLINE T exponentiate(T* dot, std::int64_t count, T scale) {
  T max = -std::numeric_limits<T>::infinity();
  for (std::int64_t p = 0; p < count; ++p) max = std::max(max, dot[p] * scale);
  for (std::int64_t p = 0; p < count; ++p) dot[p] = std::exp(dot[p] * scale - max);
  return max;
}

// Rows of scratch memory, kept from row to row.
template <class T>
struct Scratch {
  std::vector<T> first, second, features;

  void reserve(std::int64_t nonzeros, std::int64_t size) {
    if (static_cast<std::int64_t>(first.size()) < nonzeros) {
      first.resize(static_cast<std::size_t>(nonzeros));
      second.resize(static_cast<std::size_t>(nonzeros));
    }
    features.resize(static_cast<std::size_t>(size));
  }
};

// dot[p] = <phi(q_row), phi(k_col)>. Of phi(k) = relu(k) + epsilon only relu(k) is formed: the rest is
// epsilon times the sum of phi(q).
template <class Load, class T>
HWY_INLINE void row_dots(const RowAttention<T>& head, std::int64_t row, const std::int32_t* index,
                         std::int64_t count, Scratch<T>& scratch, T* dot) {
  const T* q = head.q + row * head.features;
  const Load load;
  if (!head.relu) {
    indexed_dots(q, head.k, index, count, head.features, dot, load);
    return;
  }
  const T sum = relu_features(q, head.epsilon, head.features, scratch.features.data());
  indexed_dots(scratch.features.data(), head.k, index, count, head.features, dot, load);
  for (std::int64_t p = 0; p < count; ++p) dot[p] += head.epsilon * sum;
}

// out = sum_p weight[p] phi(rows[index[p]]), the gradient of features; then through phi to `at`, where it is
// taken.
template <class Load, class T>
HWY_INLINE void feature_gradient(const RowAttention<T>& head, const T* weight, const T* rows,
                                 const std::int32_t* index, std::int64_t count, const T* at, T* out) {
  indexed_sum([&](std::int64_t p) { return weight[p]; }, rows, index, count, head.features, false, out,
              Load());
  if (!head.relu) return;
  T total = 0;
  for (std::int64_t p = 0; p < count; ++p) total += weight[p];
  for (std::int64_t c = 0; c < head.features; ++c) out[c] = at[c] >= 0 ? out[c] + head.epsilon * total : T{0};
}

// Asks for the rows of k and v that a later row of the mask will read, while this one computes: on a graph
// larger than the cache, fetching them is most of the time.
template <class T>
HWY_INLINE void prefetch_row(const RowAttention<T>& head, std::int64_t row) {
  if (row >= head.mask.num_rows) return;
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t p = head.mask.row_ptr[row]; p < head.mask.row_ptr[row + 1]; ++p) {
    const T* k = head.k + head.mask.col[p] * head.features;
    const T* v = head.v + head.mask.col[p] * head.value_columns;
    for (std::int64_t c = 0; c < head.features; c += kLine) __builtin_prefetch(k + c);
    for (std::int64_t c = 0; c < head.value_columns; c += kLine) __builtin_prefetch(v + c);
  }
}

template <class Load, class T>
HWY_INLINE void forward_rows(const RowAttention<T>& head, std::int64_t begin, std::int64_t end, T* out,
                             T* inverse_normaliser, T* row_max, T* dot, Scratch<T>& scratch) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = head.mask.row_ptr[row];
    const std::int64_t count = head.mask.row_ptr[row + 1] - first;
    const std::int32_t* index = head.mask.col + first;
    scratch.reserve(count, head.features);
    prefetch_row(head, row + 2);
    T* weight = scratch.first.data();
    row_dots<Load>(head, row, index, count, scratch, weight);
    if (dot != nullptr) std::copy_n(weight, count, dot + first);
    if (head.softmax) row_max[row] = exponentiate(weight, count, head.scale);
    T normaliser = 0;
    for (std::int64_t p = 0; p < count; ++p) {
      weight[p] *= head.value[first + p];
      normaliser += weight[p];
    }
    const T inverse = std::abs(normaliser) > head.guard ? 1 / normaliser : T{0};
    inverse_normaliser[row] = inverse;
    for (std::int64_t p = 0; p < count; ++p) weight[p] *= inverse;
    indexed_sum([&](std::int64_t p) { return weight[p]; }, head.v, index, count, head.value_columns, false,
                out + row * head.value_columns);
  }
}

template <class Load, class T>
HWY_INLINE void backward_rows(const RowAttention<T>& head, std::int64_t begin, std::int64_t end,
                              const T* grad_out, const T* out, const T* inverse_normaliser, const T* row_max,
                              const T* dot, T* grad_q, T* grad_value, T* key_weight, T* value_weight,
                              Scratch<T>& scratch) {
  const std::int64_t d_v = head.value_columns;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = head.mask.row_ptr[row];
    const std::int64_t count = head.mask.row_ptr[row + 1] - first;
    const std::int32_t* index = head.mask.col + first;
    scratch.reserve(count, head.features);
    const T* g = grad_out + row * d_v;
    const T along_out = dot_product(g, out + row * d_v, d_v);  // what the normaliser takes away
    T* slope = scratch.first.data();
    indexed_dots(g, head.v, index, count, d_v, slope);
    const T inverse = inverse_normaliser[row];
    for (std::int64_t p = 0; p < count; ++p) {
      const T mask = head.value[first + p];
      const T score = head.softmax ? std::exp(dot[first + p] * head.scale - row_max[row]) : dot[first + p];
      const T grad_score = (slope[p] - along_out) * inverse;  // dL / d(M_ij e_ij)
      grad_value[first + p] += grad_score * score;
      value_weight[first + p] = mask * score * inverse;
      key_weight[first + p] = grad_score * mask * (head.softmax ? score * head.scale : T{1});
    }
    feature_gradient<Load>(head, key_weight + first, head.k, index, count, head.q + row * head.features,
                           grad_q + row * head.features);
  }
}

template <class Load, class T>
HWY_INLINE void backward_columns(const RowAttention<T>& head, const SparseRows& columns, std::int64_t begin,
                                 std::int64_t end, const T* grad_out, const T* key_weight,
                                 const T* value_weight, T* grad_k, T* grad_v, Scratch<T>& scratch) {
  for (std::int64_t column = begin; column < end; ++column) {
    const std::int64_t first = columns.row_ptr[column];
    const std::int64_t count = columns.row_ptr[column + 1] - first;
    const std::int32_t* index = columns.col + first;
    scratch.reserve(count, head.features);
    T *by_key = scratch.first.data(), *by_value = scratch.second.data();
    for (std::int64_t p = 0; p < count; ++p) {
      by_key[p] = key_weight[columns.entry[first + p]];
      by_value[p] = value_weight[columns.entry[first + p]];
    }
    feature_gradient<Load>(head, by_key, head.q, index, count, head.k + column * head.features,
                           grad_k + column * head.features);
    indexed_sum([&](std::int64_t p) { return by_value[p]; }, grad_out, index, count, head.value_columns,
                false, grad_v + column * head.value_columns);
  }
}

// Highway exports plain functions, one per type; which features they compute is decided here.
template <class T>
HWY_INLINE void forward_any(const RowAttention<T>& head, std::int64_t begin, std::int64_t end, T* out,
                            T* inverse, T* row_max, T* dot) {
  Scratch<T> scratch;
  if (head.relu) {
    forward_rows<LoadRelu>(head, begin, end, out, inverse, row_max, dot, scratch);
  } else {
    forward_rows<LoadPlain>(head, begin, end, out, inverse, row_max, dot, scratch);
  }
}

template <class T>
HWY_INLINE void backward_any(const RowAttention<T>& head, std::int64_t begin, std::int64_t end,
                             const T* grad_out, const T* out, const T* inverse, const T* row_max,
                             const T* dot, T* grad_q, T* grad_value, T* key_weight, T* value_weight) {
  Scratch<T> scratch;
  if (head.relu) {
    backward_rows<LoadRelu>(head, begin, end, grad_out, out, inverse, row_max, dot, grad_q, grad_value,
                            key_weight, value_weight, scratch);
  } else {
    backward_rows<LoadPlain>(head, begin, end, grad_out, out, inverse, row_max, dot, grad_q, grad_value,
                             key_weight, value_weight, scratch);
  }
}

template <class T>
HWY_INLINE void columns_any(const RowAttention<T>& head, const SparseRows& columns, std::int64_t begin,
                            std::int64_t end, const T* grad_out, const T* key_weight, const T* value_weight,
                            T* grad_k, T* grad_v) {
  Scratch<T> scratch;
  if (head.relu) {
    backward_columns<LoadRelu>(head, columns, begin, end, grad_out, key_weight, value_weight, grad_k, grad_v,
                               scratch);
  } else {
    backward_columns<LoadPlain>(head, columns, begin, end, grad_out, key_weight, value_weight, grad_k, grad_v,
                                scratch);
  }
}

void forward_float(const RowAttention<float>& head, std::int64_t begin, std::int64_t end, float* out,
                   float* inverse, float* row_max, float* dot) {
  forward_any(head, begin, end, out, inverse, row_max, dot);
}
void backward_float(const RowAttention<float>& head, std::int64_t begin, std::int64_t end,
                    const float* grad_out, const float* out, const float* inverse, const float* row_max,
                    const float* dot, float* grad_q, float* grad_value, float* key_weight,
                    float* value_weight) {
  backward_any(head, begin, end, grad_out, out, inverse, row_max, dot, grad_q, grad_value, key_weight,
               value_weight);
}
void columns_float(const RowAttention<float>& head, const SparseRows& columns, std::int64_t begin,
                   std::int64_t end, const float* grad_out, const float* key_weight,
                   const float* value_weight, float* grad_k, float* grad_v) {
  columns_any(head, columns, begin, end, grad_out, key_weight, value_weight, grad_k, grad_v);
}
void forward_double(const RowAttention<double>& head, std::int64_t begin, std::int64_t end, double* out,
                    double* inverse, double* row_max, double* dot) {
  forward_any(head, begin, end, out, inverse, row_max, dot);
}
void backward_double(const RowAttention<double>& head, std::int64_t begin, std::int64_t end,
                     const double* grad_out, const double* out, const double* inverse, const double* row_max,
                     const double* dot, double* grad_q, double* grad_value, double* key_weight,
                     double* value_weight) {
  backward_any(head, begin, end, grad_out, out, inverse, row_max, dot, grad_q, grad_value, key_weight,
               value_weight);
}
void columns_double(const RowAttention<double>& head, const SparseRows& columns, std::int64_t begin,
                    std::int64_t end, const double* grad_out, const double* key_weight,
                    const double* value_weight, double* grad_k, double* grad_v) {
  columns_any(head, columns, begin, end, grad_out, key_weight, value_weight, grad_k, grad_v);
}

}  // namespace topomask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace topomask {

HWY_EXPORT(forward_float);
HWY_EXPORT(forward_double);
HWY_EXPORT(backward_float);
HWY_EXPORT(backward_double);
HWY_EXPORT(columns_float);
HWY_EXPORT(columns_double);

namespace {

// Runs of rows with equal work, several per thread.
template <class Run>
void for_row_runs(const SparseRows& matrix, const Run& run) {
  constexpr std::int64_t kNonzerosPerRun = 2048;
  if (matrix.num_rows == 0) return;
  const std::int64_t work = matrix.nnz() + matrix.num_rows;
  const std::int64_t runs =
      std::clamp<std::int64_t>(work / kNonzerosPerRun, 1, 8 * std::int64_t{num_threads()});
  parallel_for(runs, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      run(balanced_row(matrix, i, runs), balanced_row(matrix, i + 1, runs));
    }
  });
}

}  // namespace

template <class T>
void row_attention_forward(const RowAttention<T>& head, T* out, T* inverse_normaliser, T* row_max, T* dot) {
  for_row_runs(head.mask, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(forward_float)(head, begin, end, out, inverse_normaliser, row_max, dot);
    } else {
      HWY_DYNAMIC_DISPATCH(forward_double)(head, begin, end, out, inverse_normaliser, row_max, dot);
    }
    const std::int64_t nonzeros = head.mask.row_ptr[end] - head.mask.row_ptr[begin];
    count_multiply_adds(nonzeros * (head.features + head.value_columns));
    // Mask product, normaliser and its division; softmax adds the scaling, the maximum and the exponential.
    count_other_flops(nonzeros * (head.softmax ? 6 : 3) + (end - begin));
  });
}

template <class T>
void row_attention_backward(const RowAttention<T>& head, const T* grad_out, const T* out,
                            const T* inverse_normaliser, const T* row_max, const T* dot, T* grad_q,
                            T* grad_value, T* key_weight, T* value_weight) {
  for_row_runs(head.mask, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(backward_float)
      (head, begin, end, grad_out, out, inverse_normaliser, row_max, dot, grad_q, grad_value, key_weight,
       value_weight);
    } else {
      HWY_DYNAMIC_DISPATCH(backward_double)
      (head, begin, end, grad_out, out, inverse_normaliser, row_max, dot, grad_q, grad_value, key_weight,
       value_weight);
    }
    const std::int64_t nonzeros = head.mask.row_ptr[end] - head.mask.row_ptr[begin];
    count_multiply_adds(nonzeros * (head.features + head.value_columns) + (end - begin) * head.value_columns);
    count_other_flops(nonzeros * (head.softmax ? 10 : 6));
  });
}

template <class T>
void column_attention_backward(const RowAttention<T>& head, const SparseRows& columns, const T* grad_out,
                               const T* key_weight, const T* value_weight, T* grad_k, T* grad_v) {
  for_row_runs(columns, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(columns_float)
      (head, columns, begin, end, grad_out, key_weight, value_weight, grad_k, grad_v);
    } else {
      HWY_DYNAMIC_DISPATCH(columns_double)
      (head, columns, begin, end, grad_out, key_weight, value_weight, grad_k, grad_v);
    }
    count_multiply_adds((columns.row_ptr[end] - columns.row_ptr[begin]) *
                        (head.features + head.value_columns));
  });
}

#define TOPOMASK_INSTANTIATE(T)                                                                          \
  template void row_attention_forward(const RowAttention<T>&, T*, T*, T*, T*);                           \
  template void row_attention_backward(const RowAttention<T>&, const T*, const T*, const T*, const T*,   \
                                       const T*, T*, T*, T*, T*);                                        \
  template void column_attention_backward(const RowAttention<T>&, const SparseRows&, const T*, const T*, \
                                          const T*, T*, T*)
TOPOMASK_INSTANTIATE(float);
TOPOMASK_INSTANTIATE(double);
#undef TOPOMASK_INSTANTIATE

}  // namespace topomask

#endif  // HWY_ONCE
