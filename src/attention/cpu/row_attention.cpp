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

template <class T>
HWY_INLINE void forward_rows(const RowAttention<T>& head, std::int64_t begin, std::int64_t end, T* out,
                             T* inverse_normaliser, T* row_max, std::vector<T>& weight) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = head.mask.row_ptr[row];
    const std::int64_t count = head.mask.row_ptr[row + 1] - first;
    const std::int32_t* index = head.mask.col + first;
    if (static_cast<std::int64_t>(weight.size()) < count) weight.resize(static_cast<std::size_t>(count));
    indexed_dots(head.q + row * head.features, head.k, index, count, head.features, weight.data());
    if (head.softmax) row_max[row] = exponentiate(weight.data(), count, head.scale);
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

template <class T>
HWY_INLINE void backward_rows(const RowAttention<T>& head, std::int64_t begin, std::int64_t end,
                              const T* grad_out, const T* out, const T* inverse_normaliser, const T* row_max,
                              T* grad_q, T* grad_value, T* key_weight, T* value_weight, std::vector<T>& dot,
                              std::vector<T>& slope) {
  const std::int64_t d_v = head.value_columns;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = head.mask.row_ptr[row];
    const std::int64_t count = head.mask.row_ptr[row + 1] - first;
    const std::int32_t* index = head.mask.col + first;
    if (static_cast<std::int64_t>(dot.size()) < count) {
      dot.resize(static_cast<std::size_t>(count));
      slope.resize(static_cast<std::size_t>(count));
    }
    const T* g = grad_out + row * d_v;
    T along_out = 0;  // <g_i, out_i>: what the normaliser takes away
    for (std::int64_t c = 0; c < d_v; ++c) along_out += g[c] * out[row * d_v + c];
    indexed_dots(head.q + row * head.features, head.k, index, count, head.features, dot.data());
    indexed_dots(g, head.v, index, count, d_v, slope.data());
    const T inverse = inverse_normaliser[row];
    for (std::int64_t p = 0; p < count; ++p) {
      const T mask = head.value[first + p];
      const T score = head.softmax ? std::exp(dot[p] * head.scale - row_max[row]) : dot[p];
      const T grad_score = (slope[p] - along_out) * inverse;  // dL / d(M_ij e_ij)
      grad_value[first + p] += grad_score * score;
      value_weight[first + p] = mask * score * inverse;
      key_weight[first + p] = grad_score * mask * (head.softmax ? score * head.scale : T{1});
    }
    indexed_sum([&](std::int64_t p) { return key_weight[first + p]; }, head.k, index, count, head.features,
                false, grad_q + row * head.features);
  }
}

void forward_float(const RowAttention<float>& head, std::int64_t begin, std::int64_t end, float* out,
                   float* inverse, float* row_max, std::vector<float>& weight) {
  forward_rows(head, begin, end, out, inverse, row_max, weight);
}
void forward_double(const RowAttention<double>& head, std::int64_t begin, std::int64_t end, double* out,
                    double* inverse, double* row_max, std::vector<double>& weight) {
  forward_rows(head, begin, end, out, inverse, row_max, weight);
}
void backward_float(const RowAttention<float>& head, std::int64_t begin, std::int64_t end,
                    const float* grad_out, const float* out, const float* inverse, const float* row_max,
                    float* grad_q, float* grad_value, float* key_weight, float* value_weight,
                    std::vector<float>& dot, std::vector<float>& slope) {
  backward_rows(head, begin, end, grad_out, out, inverse, row_max, grad_q, grad_value, key_weight,
                value_weight, dot, slope);
}
void backward_double(const RowAttention<double>& head, std::int64_t begin, std::int64_t end,
                     const double* grad_out, const double* out, const double* inverse, const double* row_max,
                     double* grad_q, double* grad_value, double* key_weight, double* value_weight,
                     std::vector<double>& dot, std::vector<double>& slope) {
  backward_rows(head, begin, end, grad_out, out, inverse, row_max, grad_q, grad_value, key_weight,
                value_weight, dot, slope);
}

}  // namespace topomask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace topomask {

HWY_EXPORT(forward_float);
HWY_EXPORT(forward_double);
HWY_EXPORT(backward_float);
HWY_EXPORT(backward_double);

namespace {

// Runs of rows with equal work, several per thread.
template <class T, class Run>
void for_row_runs(const RowAttention<T>& head, const Run& run) {
  constexpr std::int64_t kNonzerosPerRun = 2048;
  if (head.mask.num_rows == 0) return;
  const std::int64_t work = head.mask.nnz() + head.mask.num_rows;
  const std::int64_t runs =
      std::clamp<std::int64_t>(work / kNonzerosPerRun, 1, 8 * std::int64_t{num_threads()});
  parallel_for(runs, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      run(balanced_row(head.mask, i, runs), balanced_row(head.mask, i + 1, runs));
    }
  });
}

}  // namespace

template <class T>
void row_attention_forward(const RowAttention<T>& head, T* out, T* inverse_normaliser, T* row_max) {
  for_row_runs(head, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> weight(64);
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(forward_float)(head, begin, end, out, inverse_normaliser, row_max, weight);
    } else {
      HWY_DYNAMIC_DISPATCH(forward_double)(head, begin, end, out, inverse_normaliser, row_max, weight);
    }
    const std::int64_t nonzeros = head.mask.row_ptr[end] - head.mask.row_ptr[begin];
    count_multiply_adds(nonzeros * (head.features + head.value_columns));
    // Mask product, normaliser and its division; softmax adds the scaling, the maximum and the exponential.
    count_other_flops(nonzeros * (head.softmax ? 6 : 3) + (end - begin));
  });
}

template <class T>
void row_attention_backward(const RowAttention<T>& head, const T* grad_out, const T* out,
                            const T* inverse_normaliser, const T* row_max, T* grad_q, T* grad_value,
                            T* key_weight, T* value_weight) {
  for_row_runs(head, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> dot(64), slope(64);
    if constexpr (std::is_same_v<T, float>) {
      HWY_DYNAMIC_DISPATCH(backward_float)
      (head, begin, end, grad_out, out, inverse_normaliser, row_max, grad_q, grad_value, key_weight,
       value_weight, dot, slope);
    } else {
      HWY_DYNAMIC_DISPATCH(backward_double)
      (head, begin, end, grad_out, out, inverse_normaliser, row_max, grad_q, grad_value, key_weight,
       value_weight, dot, slope);
    }
    const std::int64_t nonzeros = head.mask.row_ptr[end] - head.mask.row_ptr[begin];
    count_multiply_adds(nonzeros * (2 * head.features + head.value_columns) +
                        (end - begin) * head.value_columns);
    count_other_flops(nonzeros * (head.softmax ? 10 : 6));
  });
}

template void row_attention_forward(const RowAttention<float>&, float*, float*, float*);
template void row_attention_forward(const RowAttention<double>&, double*, double*, double*);
template void row_attention_backward(const RowAttention<float>&, const float*, const float*, const float*,
                                     const float*, float*, float*, float*, float*);
template void row_attention_backward(const RowAttention<double>&, const double*, const double*, const double*,
                                     const double*, double*, double*, double*, double*);

}  // namespace topomask

#endif  // HWY_ONCE
