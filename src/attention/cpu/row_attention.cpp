#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/cpu/row_attention.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "attention/cpu/row_attention.h"
#include "attention/cpu/rows_then_columns.h"
#include "core/flops.h"
#include "core/parallel.h"
#include "core/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topomask::HWY_NAMESPACE {

// exp(scale * dot - max) in place, 0 where the mask is; returns max, the largest exponent of what the mask
// lets through, so that a masked-out giant cannot underflow the rest.
template <class T>
HWY_INLINE T exponentiate(T* dot, const T* value, std::int64_t count, T scale) {
  constexpr T kNone = -std::numeric_limits<T>::infinity();
  T max = kNone;
  for (std::int64_t p = 0; p < count; ++p) max = std::max(max, value[p] == 0 ? kNone : dot[p] * scale);
  if (max == kNone) max = 0;
  for (std::int64_t p = 0; p < count; ++p) dot[p] = value[p] == 0 ? T{0} : std::exp(dot[p] * scale - max);
  return max;
}

// exp(x / 2), kept finite. The gradient of M at a zero takes the factor exp(x) of a score that may be far
// above the maximum of its row: multiplied in two halves, it overflows only where the gradient does.
template <class T>
HWY_INLINE T half_exponential(T x) {
  constexpr T kMost = sizeof(T) == 4 ? 88 : 709;
  return std::exp(std::min(x / 2, kMost));  // in this order, NaN stays NaN
}

// 1 / D_i, or 0 for a guarded row. NaN is not guarded.
template <class T>
HWY_INLINE T inverse_of(T normaliser, T guard) {
  return std::abs(normaliser) <= guard ? T{0} : 1 / normaliser;
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
  if (!head.rule.is_relu()) {
    indexed_dots(q, head.k, index, count, head.features, dot, load);
    return;
  }
  const T sum = relu_features(q, head.rule.epsilon, head.features, scratch.features.data());
  indexed_dots(scratch.features.data(), head.k, index, count, head.features, dot, load);
  for (std::int64_t p = 0; p < count; ++p) dot[p] += head.rule.epsilon * sum;
}

// out = sum_p weight[p] phi(rows[index[p]]), the gradient of features; then through phi to `at`, where it is
// taken.
template <class Load, class T>
HWY_INLINE void feature_gradient(const RowAttention<T>& head, const T* weight, const T* rows,
                                 const std::int32_t* index, std::int64_t count, const T* at, T* out) {
  indexed_sum([&](std::int64_t p) { return weight[p]; }, rows, index, count, head.features, false, out,
              Load());
  if (!head.rule.is_relu()) return;
  T total = 0;
  for (std::int64_t p = 0; p < count; ++p) total += weight[p];
  relu_gradient(at, head.rule.epsilon * total, head.features, out);
}

template <class Load, class T>
HWY_INLINE void forward_rows(const RowAttention<T>& head, std::int64_t begin, std::int64_t end, T* out,
                             T* inverse_normaliser, T* row_max, T* dot, Scratch<T>& scratch) {
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = head.mask.row_ptr[row];
    const std::int64_t count = head.mask.row_ptr[row + 1] - first;
    const std::int32_t* index = head.mask.col + first;
    scratch.reserve(count, head.features);
    T* weight = scratch.first.data();
    row_dots<Load>(head, row, index, count, scratch, weight);
    if (dot != nullptr) std::copy_n(weight, count, dot + first);
    if (head.rule.is_softmax())
      row_max[row] = exponentiate(weight, head.value + first, count, head.rule.scale);
    T normaliser = 0;
    for (std::int64_t p = 0; p < count; ++p) {
      weight[p] *= head.value[first + p];
      normaliser += weight[p];
    }
    const T inverse = inverse_of(normaliser, head.rule.guard);
    inverse_normaliser[row] = inverse;
    for (std::int64_t p = 0; p < count; ++p) weight[p] *= inverse;
    indexed_sum([&](std::int64_t p) { return weight[p]; }, head.v, index, count, head.value_columns, false,
                out + row * head.value_columns);
  }
}

// What the backward pass derives at a nonzero p of a row from the slope <g_i, v_j>.
template <class T>
struct RowSlope {
  const RowAttention<T>& head;
  const RowAttentionGradients<T>& pass;
  std::int64_t first;  // nonzero of the row
  T along_out;         // <g_i, out_i>: what the normaliser takes away
  T inverse, row_max;

  HWY_INLINE RowSlope(const RowAttention<T>& of, const RowAttentionGradients<T>& gradients, std::int64_t row)
      : head(of),
        pass(gradients),
        first(of.mask.row_ptr[row]),
        along_out(dot_product(gradients.grad_out + row * of.value_columns,
                              gradients.out + row * of.value_columns, of.value_columns)),
        inverse(gradients.inverse_normaliser[row]),
        row_max(of.rule.is_softmax() ? gradients.row_max[row] : T{0}) {}

  // Returns dL/d<q_i, k_j>.
  HWY_INLINE T operator()(std::int64_t p, T slope) const {
    const std::int64_t at = first + p;
    const T mask = head.value[at];
    const T grad_score = (slope - along_out) * inverse;  // dL / d(M_ij e_ij)
    T score = pass.dot[at], grad = grad_score * score, key = grad_score * mask;
    if (head.rule.is_softmax()) {
      const T half = half_exponential(score * head.rule.scale - row_max);
      score = mask == 0 ? T{0} : half * half;
      grad = grad_score * half * half;
      key *= score * head.rule.scale;
    }
    pass.grad_value[at] = pass.accumulate ? pass.grad_value[at] + grad : grad;
    pass.weights[at] = {key, mask * score * inverse};
    return key;
  }

  // The same for four nonzeros from p on, where scores are the products themselves.
  HWY_INLINE void four(std::int64_t p, const T* slopes, T* keys) const {
    const hn::CappedTag<T, 4> d;
    for (std::size_t r = 0; r < 4; r += hn::Lanes(d)) {
      const std::int64_t at = first + p + static_cast<std::int64_t>(r);
      const auto mask = hn::LoadU(d, head.value + at), score = hn::LoadU(d, pass.dot + at);
      const auto slope = hn::Sub(hn::LoadU(d, slopes + r), hn::Set(d, along_out));
      const auto grad_score = hn::Mul(slope, hn::Set(d, inverse));
      auto grad = hn::Mul(grad_score, score);
      if (pass.accumulate) grad = hn::Add(hn::LoadU(d, pass.grad_value + at), grad);
      hn::StoreU(grad, d, pass.grad_value + at);
      const auto key = hn::Mul(grad_score, mask);
      hn::StoreU(key, d, keys + r);
      hn::StoreInterleaved2(key, hn::Mul(hn::Mul(mask, score), hn::Set(d, inverse)), d,
                            &pass.weights[at].key);
    }
  }
};

template <class Load, class T>
HWY_INLINE void backward_rows(const RowAttention<T>& head, std::int64_t begin, std::int64_t end,
                              const RowAttentionGradients<T>& pass, Scratch<T>& scratch) {
  const std::int64_t d_v = head.value_columns;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = head.mask.row_ptr[row];
    const std::int64_t count = head.mask.row_ptr[row + 1] - first;
    const std::int32_t* index = head.mask.col + first;
    scratch.reserve(count, head.features);
    const T* g = pass.grad_out + row * d_v;
    T* slope = scratch.first.data();
    indexed_dots(g, head.v, index, count, d_v, slope);
    T* key_weight = scratch.second.data();
    const RowSlope<T> row_slope(head, pass, row);
    for (std::int64_t p = 0; p < count; ++p) key_weight[p] = row_slope(p, slope[p]);
    feature_gradient<Load>(head, key_weight, head.k, index, count, head.q + row * head.features,
                           pass.grad_q + row * head.features);
  }
}

template <class Load, class T>
HWY_INLINE void backward_columns(const RowAttention<T>& head, const SparseRows& columns, std::int64_t begin,
                                 std::int64_t end, const RowAttentionGradients<T>& pass,
                                 Scratch<T>& scratch) {
  for (std::int64_t column = begin; column < end; ++column) {
    const std::int64_t first = columns.row_ptr[column];
    const std::int64_t count = columns.row_ptr[column + 1] - first;
    const std::int32_t* index = columns.col + first;
    scratch.reserve(count, head.features);
    T *by_key = scratch.first.data(), *by_value = scratch.second.data();
    for (std::int64_t p = 0; p < count; ++p) {
      by_key[p] = pass.weights[columns.entry[first + p]].key;
      by_value[p] = pass.weights[columns.entry[first + p]].value;
    }
    feature_gradient<Load>(head, by_key, head.q, index, count, head.k + column * head.features,
                           pass.grad_k + column * head.features);
    indexed_sum([&](std::int64_t p) { return by_value[p]; }, pass.grad_out, index, count, head.value_columns,
                false, pass.grad_v + column * head.value_columns);
  }
}

#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
// Rows of q and of the results are used once each, too few at a time for the hardware to detect a stream.
constexpr std::int64_t kRowsAhead = 4;

// Of the rows of a and b that a row of the mask meets, the last has most likely not been met before. Which
// one that is must not be waited for either.
template <class T>
HWY_INLINE void fetch_newest(const SparseRows& mask, std::int64_t row, const T* a, std::int64_t a_columns,
                             const T* b, std::int64_t b_columns) {
  const std::int64_t end = mask.row_ptr[row + 1];
  if (end == mask.row_ptr[row]) return;
  constexpr std::int64_t kColumnsAhead = 96, kColumnsOfARow = 32;  // the latter more or less
  fetch_row(mask.col + end + kColumnsAhead, kColumnsOfARow);
  const std::int64_t newest = mask.col[end - 1];
  fetch_row(a + newest * a_columns, a_columns);
  fetch_row(b + newest * b_columns, b_columns);
}

// The gradient of features through phi to x, where it is taken. The sum of their weights, which phi's epsilon
// is multiplied with, is complete when the first vector is written.
template <class T>
struct FeatureGradientWriter {
  RowWriter<T> write;
  const T* x;
  bool relu;
  const T& total_weight;
  T epsilon;

  template <class V>
  HWY_INLINE void operator()(int i, V sum) const {
    const hn::ScalableTag<T> d;
    if (relu) {
      const V shifted = hn::Add(sum, hn::Set(d, epsilon * total_weight));
      const V at = hn::LoadU(d, x + i * static_cast<std::int64_t>(hn::Lanes(d)));
      sum = hn::IfThenElseZero(hn::Ge(at, hn::Zero(d)), shifted);
    }
    write(i, sum);
  }
};

// The passes above for rows of a few whole vectors, in one loop over the nonzeros each: three times as fast.
template <int kVectors, class Load, class T>
HWY_INLINE void forward_in_registers(const RowAttention<T>& head, std::int64_t begin, std::int64_t end,
                                     T* out, T* inverse_normaliser, T* dot) {
  const hn::CappedTag<T, 4> four;
  const hn::ScalableTag<T> d;
  const Result<T> result(out, head.value_columns, head.past_caches);
  for (std::int64_t row = begin; row < end; ++row) {
    if (row + kRowsAhead < end) {
      fetch_row(head.q + (row + kRowsAhead) * head.features, head.features);
      result.fetch(row + kRowsAhead);
      fetch_newest(head.mask, row + kRowsAhead, head.k, head.features, head.v, head.value_columns);
    }
    const std::int64_t first = head.mask.row_ptr[row];
    RegisterRow<kVectors, T> q(head.q + row * head.features);
    auto start = hn::Zero(d);  // of phi(k) = relu(k) + epsilon, the second half of every product
    if (head.rule.is_relu()) {
      for (auto& x : q.vector) {
        x = hn::Add(LoadRelu()(x), hn::Set(d, head.rule.epsilon));
        start = hn::Add(start, x);
      }
      start = hn::Mul(start, hn::Set(d, head.rule.epsilon));
    }
    T normaliser = 0;
    auto normalisers = hn::Zero(four);
    const auto weigh = [&](std::int64_t p, std::int64_t count, const T* dots, T* weights) HWY_ATTR {
      if (count == 4) {
        for (std::size_t r = 0; r < 4; r += hn::Lanes(four)) {
          const auto score = hn::LoadU(four, dots + r);
          if (dot != nullptr) hn::StoreU(score, four, dot + first + p + r);
          const auto weight = hn::Mul(score, hn::LoadU(four, head.value + first + p + r));
          hn::StoreU(weight, four, weights + r);
          normalisers = hn::Add(normalisers, weight);
        }
        return;
      }
      for (std::int64_t r = 0; r < 3; ++r) {
        const std::int64_t at = first + p + std::min(r, count - 1);
        if (dot != nullptr) dot[at] = dots[r];  // beyond the count, products repeat the last one
        weights[r] = r < count ? dots[r] * head.value[at] : T{0};
        normaliser += weights[r];
      }
    };
    T inverse = 0;
    const auto normalise = [&, write = result.row(row)](int i, auto sum) HWY_ATTR {
      if (i == 0) {
        normaliser += hn::GetLane(hn::SumOfLanes(four, normalisers));
        inverse = inverse_of(normaliser, head.rule.guard);
        inverse_normaliser[row] = inverse;
      }
      write(i, hn::Mul(sum, hn::Set(d, inverse)));
    };
    dots_then_sum<kVectors, kVectors>(q, start, head.k, Load(), head.v, LoadPlain(), head.mask.col + first,
                                      head.mask.row_ptr[row + 1] - first, weigh, normalise);
  }
}

template <int kVectors, class Load, class T>
HWY_INLINE void backward_in_registers(const RowAttention<T>& head, std::int64_t begin, std::int64_t end,
                                      const RowAttentionGradients<T>& pass) {
  const std::int64_t d_v = head.value_columns;
  const Result<T> result(pass.grad_q, head.features, head.past_caches);
  for (std::int64_t row = begin; row < end; ++row) {
    if (row + kRowsAhead < end) {
      fetch_row(pass.grad_out + (row + kRowsAhead) * d_v, d_v);
      fetch_row(pass.out + (row + kRowsAhead) * d_v, d_v);
      result.fetch(row + kRowsAhead);
      if (head.rule.is_relu()) fetch_row(head.q + (row + kRowsAhead) * head.features, head.features);
      fetch_newest(head.mask, row + kRowsAhead, head.k, head.features, head.v, d_v);
    }
    const std::int64_t first = head.mask.row_ptr[row];
    const RowSlope<T> row_slope(head, pass, row);
    T total = 0;
    // Inlined for certain: a call would send the sums in registers to memory and back.
    const auto weigh = [&](std::int64_t p, std::int64_t count, const T* slopes, T* key_weights) HWY_ATTR
        __attribute__((always_inline)) {
      if (count == 4 && !head.rule.is_softmax()) {
        row_slope.four(p, slopes, key_weights);
      } else {
        for (std::int64_t r = 0; r < count; ++r) key_weights[r] = row_slope(p + r, slopes[r]);
      }
      for (std::int64_t r = 0; r < count; ++r) total += key_weights[r];
      for (std::int64_t r = count; r < 4; ++r) key_weights[r] = 0;
    };
    const FeatureGradientWriter<T> write{result.row(row), head.q + row * head.features, head.rule.is_relu(),
                                         total, head.rule.epsilon};
    dots_then_sum<kVectors, kVectors>(
        RegisterRow<kVectors, T>(pass.grad_out + row * d_v), hn::Zero(hn::ScalableTag<T>()), head.v,
        LoadPlain(), head.k, Load(), head.mask.col + first, head.mask.row_ptr[row + 1] - first, weigh, write);
  }
}

template <int kVectors, class Load, class T>
HWY_INLINE void columns_in_registers(const RowAttention<T>& head, const SparseRows& columns,
                                     std::int64_t begin, std::int64_t end,
                                     const RowAttentionGradients<T>& pass) {
  constexpr std::int64_t kAhead = 32;
  const std::int64_t nnz = columns.nnz();
  const Result<T> keys(pass.grad_k, head.features, head.past_caches),
      values(pass.grad_v, head.value_columns, head.past_caches);
  const ColumnWeights<T>* weights = pass.weights;
  for (std::int64_t column = begin; column < end; ++column) {
    if (column + kRowsAhead < end) {
      keys.fetch(column + kRowsAhead);
      values.fetch(column + kRowsAhead);
      if (head.rule.is_relu()) fetch_row(head.k + (column + kRowsAhead) * head.features, head.features);
      fetch_newest(columns, column + kRowsAhead, head.q, head.features, pass.grad_out, head.value_columns);
    }
    const std::int64_t first = columns.row_ptr[column];
    T total = 0;
    const auto weights_of = [&](std::int64_t p) HWY_ATTR {
      // The one access that is out of order: a nonzero's weights lie in its row.
      if (first + p + kAhead < nnz) __builtin_prefetch(weights + columns.entry[first + p + kAhead]);
      const ColumnWeights<T> both = weights[columns.entry[first + p]];
      total += both.key;
      return both;
    };
    const FeatureGradientWriter<T> write{keys.row(column), head.k + column * head.features,
                                         head.rule.is_relu(), total, head.rule.epsilon};
    two_sums<kVectors, kVectors>(weights_of, head.q, Load(), pass.grad_out, LoadPlain(), columns.col + first,
                                 columns.row_ptr[column + 1] - first, write, values.row(column));
  }
}
#endif

// Calls use(n), n a compile-time constant, for rows of n vectors that the loops in registers take; returns
// whether it did.
template <class T, class Use>
HWY_INLINE bool in_registers([[maybe_unused]] const RowAttention<T>& head, [[maybe_unused]] const Use& use) {
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  if (head.features != head.value_columns) return false;
  if (head.features == kLanes) return use(std::integral_constant<int, 1>()), true;
  if (head.features == 2 * kLanes) return use(std::integral_constant<int, 2>()), true;
  if (head.features == 4 * kLanes) return use(std::integral_constant<int, 4>()), true;
  if constexpr (kMaxRegisterVectors >= 8) {
    if (head.features == 8 * kLanes) return use(std::integral_constant<int, 8>()), true;
  }
#endif
  return false;
}

// Highway exports plain functions, one per type; which features they compute is decided here.
template <class Load, class T>
HWY_INLINE void forward_features(const RowAttention<T>& head, std::int64_t begin, std::int64_t end, T* out,
                                 T* inverse, T* row_max, T* dot) {
  // Softmax needs the maximum of a row before its first weight.
  if (!head.rule.is_softmax() && in_registers(head, [&](auto vectors) HWY_ATTR {
        forward_in_registers<vectors.value, Load>(head, begin, end, out, inverse, dot);
      })) {
    return;
  }
  Scratch<T> scratch;
  forward_rows<Load>(head, begin, end, out, inverse, row_max, dot, scratch);
}

template <class Load, class T>
HWY_INLINE void backward_features(const RowAttention<T>& head, std::int64_t begin, std::int64_t end,
                                  const RowAttentionGradients<T>& pass) {
  if (in_registers(head, [&](auto vectors) HWY_ATTR {
        backward_in_registers<vectors.value, Load>(head, begin, end, pass);
      })) {
    return;
  }
  Scratch<T> scratch;
  backward_rows<Load>(head, begin, end, pass, scratch);
}

template <class Load, class T>
HWY_INLINE void column_features(const RowAttention<T>& head, const SparseRows& columns, std::int64_t begin,
                                std::int64_t end, const RowAttentionGradients<T>& pass) {
  if (in_registers(head, [&](auto vectors) HWY_ATTR {
        columns_in_registers<vectors.value, Load>(head, columns, begin, end, pass);
      })) {
    return;
  }
  Scratch<T> scratch;
  backward_columns<Load>(head, columns, begin, end, pass, scratch);
}

template <class T>
HWY_INLINE void forward_any(const RowAttention<T>& head, std::int64_t begin, std::int64_t end, T* out,
                            T* inverse, T* row_max, T* dot) {
  if (head.rule.is_relu()) {
    forward_features<LoadRelu>(head, begin, end, out, inverse, row_max, dot);
  } else {
    forward_features<LoadPlain>(head, begin, end, out, inverse, row_max, dot);
  }
}

template <class T>
HWY_INLINE void backward_any(const RowAttention<T>& head, std::int64_t begin, std::int64_t end,
                             const RowAttentionGradients<T>& pass) {
  if (head.rule.is_relu()) {
    backward_features<LoadRelu>(head, begin, end, pass);
  } else {
    backward_features<LoadPlain>(head, begin, end, pass);
  }
}

template <class T>
HWY_INLINE void columns_any(const RowAttention<T>& head, const SparseRows& columns, std::int64_t begin,
                            std::int64_t end, const RowAttentionGradients<T>& pass) {
  if (head.rule.is_relu()) {
    column_features<LoadRelu>(head, columns, begin, end, pass);
  } else {
    column_features<LoadPlain>(head, columns, begin, end, pass);
  }
}

void forward_float(const RowAttention<float>& head, std::int64_t begin, std::int64_t end, float* out,
                   float* inverse, float* row_max, float* dot) {
  forward_any(head, begin, end, out, inverse, row_max, dot);
}
void backward_float(const RowAttention<float>& head, std::int64_t begin, std::int64_t end,
                    const RowAttentionGradients<float>& pass) {
  backward_any(head, begin, end, pass);
}
void columns_float(const RowAttention<float>& head, const SparseRows& columns, std::int64_t begin,
                   std::int64_t end, const RowAttentionGradients<float>& pass) {
  columns_any(head, columns, begin, end, pass);
}
void forward_double(const RowAttention<double>& head, std::int64_t begin, std::int64_t end, double* out,
                    double* inverse, double* row_max, double* dot) {
  forward_any(head, begin, end, out, inverse, row_max, dot);
}
void backward_double(const RowAttention<double>& head, std::int64_t begin, std::int64_t end,
                     const RowAttentionGradients<double>& pass) {
  backward_any(head, begin, end, pass);
}
void columns_double(const RowAttention<double>& head, const SparseRows& columns, std::int64_t begin,
                    std::int64_t end, const RowAttentionGradients<double>& pass) {
  columns_any(head, columns, begin, end, pass);
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

template <class Run>
void for_row_runs(const SparseRows& matrix, const Run& run) {
  if (matrix.num_rows == 0) return;
  const std::int64_t runs = runs_for_threads(matrix);
  for_runs(runs, 1, [&](std::int64_t begin, std::int64_t end) {
    run(balanced_row(matrix, begin, runs), balanced_row(matrix, end, runs));
    hwy::FlushStream();  // from here on, other threads see what was written past the caches
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
    count_other_flops(nonzeros * (head.rule.is_softmax() ? 6 : 3) + (end - begin));
  });
}

template <class T>
void row_attention_backward(const RowAttention<T>& head, const SparseRows& columns,
                            const RowAttentionGradients<T>& pass) {
  constexpr bool kFloat = std::is_same_v<T, float>;
  const auto row_half = [&](std::int64_t begin, std::int64_t end) {
    if constexpr (kFloat) {
      HWY_DYNAMIC_DISPATCH(backward_float)(head, begin, end, pass);
    } else {
      HWY_DYNAMIC_DISPATCH(backward_double)(head, begin, end, pass);
    }
    hwy::FlushStream();
  };
  const auto column_half = [&](std::int64_t begin, std::int64_t end) {
    if constexpr (kFloat) {
      HWY_DYNAMIC_DISPATCH(columns_float)(head, columns, begin, end, pass);
    } else {
      HWY_DYNAMIC_DISPATCH(columns_double)(head, columns, begin, end, pass);
    }
    hwy::FlushStream();
  };
  rows_then_columns(head.mask, columns, row_half, column_half);
  const std::int64_t nonzeros = head.mask.nnz();
  count_multiply_adds(2 * nonzeros * (head.features + head.value_columns) +
                      head.mask.num_rows * head.value_columns);
  count_other_flops(nonzeros * (head.rule.is_softmax() ? 10 : 6));
}

#define TOPOMASK_INSTANTIATE(T)                                                   \
  template void row_attention_forward(const RowAttention<T>&, T*, T*, T*, T*);    \
  template void row_attention_backward(const RowAttention<T>&, const SparseRows&, \
                                       const RowAttentionGradients<T>&)
TOPOMASK_INSTANTIATE(float);
TOPOMASK_INSTANTIATE(double);
#undef TOPOMASK_INSTANTIATE

}  // namespace topomask

#endif  // HWY_ONCE
