// Dense inner loops shared by the vector kernels: included once per instruction set by files that go through
// hwy/foreach_target.h, hence no ordinary include guard.
#if defined(TOPOMASK_CORE_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TOPOMASK_CORE_VECTOR_MATH_INL_H_
#undef TOPOMASK_CORE_VECTOR_MATH_INL_H_
#else
#define TOPOMASK_CORE_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace topomask::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Adds the blocks of 128 bits of a vector, in registers.
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
template <class D, class V>
HWY_INLINE auto sum_of_blocks(D, V v) {
  if constexpr (D::kPrivateN * sizeof(hn::TFromD<D>) <= 16) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// The sums of the lanes of four vectors. For float they are interleaved pairwise, three shuffles per sum.
template <class V>
HWY_INLINE void four_sums(hn::ScalableTag<double> d, V a, V b, V c, V e, double* HWY_RESTRICT out) {
  out[0] = hn::GetLane(hn::SumOfLanes(d, a));
  out[1] = hn::GetLane(hn::SumOfLanes(d, b));
  out[2] = hn::GetLane(hn::SumOfLanes(d, c));
  out[3] = hn::GetLane(hn::SumOfLanes(d, e));
}

template <class V>
HWY_INLINE void four_sums(hn::ScalableTag<float> d, V a, V b, V c, V e, float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE
  out[0] = hn::GetLane(hn::SumOfLanes(d, a));
  out[1] = hn::GetLane(hn::SumOfLanes(d, b));
  out[2] = hn::GetLane(hn::SumOfLanes(d, c));
  out[3] = hn::GetLane(hn::SumOfLanes(d, e));
#else
  const hn::Repartition<double, decltype(d)> pairs;  // only moves pairs of floats about
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const V sums =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce))),
              hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce))));
  hn::StoreU(sum_of_blocks(d, sums), hn::FixedTag<float, 4>(), out);
#endif
}

// What is done to an element of a row as it is loaded: nothing, or ReLU, so that ReLU features need no
// memory.
struct LoadPlain {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return x;
  }
};
// max(x, 0), where NaN stays NaN as in torch: a lost one would let training go on with garbage.
struct LoadRelu {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    const auto zero = hn::Zero(hn::DFromV<V>());
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
    return hn::Max(zero, x);  // the instruction returns its second operand where either is NaN
#else
    return hn::IfThenZeroElse(hn::Lt(x, zero), x);
#endif
  }
  HWY_INLINE float operator()(float x) const {
    return x < 0 ? 0 : x;
  }
  HWY_INLINE double operator()(double x) const {
    return x < 0 ? 0 : x;
  }
};

// Asks for a row that will be read, or written, some rows from now.
template <class T>
HWY_INLINE void fetch_row(const T* row, std::int64_t size) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < size; i += kLine) __builtin_prefetch(row + i, 0);
}
template <class T>
HWY_INLINE void fetch_row_to_write(T* row, std::int64_t size) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t i = 0; i < size; i += kLine) __builtin_prefetch(row + i, 1);
}

// One row of a result, vector by vector.
template <class T>
struct RowWriter {
  T* out;
  bool past_caches;

  template <class V>
  HWY_INLINE void operator()(int i, V vector) const {
    const hn::ScalableTag<T> d;
    T* at = out + i * static_cast<std::int64_t>(hn::Lanes(d));
    if (past_caches) {
      hn::Stream(vector, d, at);
    } else {
      hn::StoreU(vector, d, at);
    }
  }
};

// A result of whole vectors, `columns` wide, written into the caches or past them.
template <class T>
class Result {
 public:
  Result(T* out, std::int64_t columns, bool past_caches)
      : out_(out), columns_(columns), past_caches_(past_caches && is_aligned(out)) {}

  HWY_INLINE RowWriter<T> row(std::int64_t i) const { return {out_ + i * columns_, past_caches_}; }
  HWY_INLINE void fetch(std::int64_t i) const {
    if (!past_caches_) fetch_row_to_write(out_ + i * columns_, columns_);
  }

 private:
  static bool is_aligned(const T* out) {
    return reinterpret_cast<std::uintptr_t>(out) % (hn::MaxLanes(hn::ScalableTag<T>()) * sizeof(T)) == 0;
  }

  T* out_;
  std::int64_t columns_;
  bool past_caches_;
};

// <a, b>, summed lane by lane: a single running sum would wait for every addition.
template <class T>
HWY_INLINE T dot_product(const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, std::int64_t size) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) sums = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sums);
  T sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

// out = max(x, 0) + epsilon; returns the sum of out.
template <class T>
HWY_INLINE T relu_features(const T* HWY_RESTRICT x, T epsilon, std::int64_t size, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto feature = hn::Add(LoadRelu()(hn::LoadU(d, x + i)), hn::Set(d, epsilon));
    hn::StoreU(feature, d, out + i);
    sums = hn::Add(sums, feature);
  }
  T sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < size; ++i) sum += out[i] = LoadRelu()(x[i]) + epsilon;
  return sum;
}

// Through x -> max(x, 0) + epsilon backwards: grad = grad + shift where x >= 0, else 0. At NaN too it is 0,
// as the gradient of torch's clamp_min.
template <class T>
HWY_INLINE void relu_gradient(const T* HWY_RESTRICT x, T shift, std::int64_t size, T* HWY_RESTRICT grad) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto shifted = hn::Add(hn::LoadU(d, grad + i), hn::Set(d, shift));
    hn::StoreU(hn::IfThenElseZero(hn::Ge(hn::LoadU(d, x + i), hn::Zero(d)), shifted), d, grad + i);
  }
  for (; i < size; ++i) grad[i] = x[i] >= 0 ? grad[i] + shift : T{0};
}

// out[r] = <a, load(b_r)> for four rows b_r.
template <class T, class Load>
HWY_INLINE void four_dots(const T* HWY_RESTRICT a, const T* const b[4], std::int64_t size, const Load& load,
                          T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto x = hn::LoadU(d, a + i);
    sum0 = hn::MulAdd(x, load(hn::LoadU(d, b[0] + i)), sum0);
    sum1 = hn::MulAdd(x, load(hn::LoadU(d, b[1] + i)), sum1);
    sum2 = hn::MulAdd(x, load(hn::LoadU(d, b[2] + i)), sum2);
    sum3 = hn::MulAdd(x, load(hn::LoadU(d, b[3] + i)), sum3);
  }
  four_sums(d, sum0, sum1, sum2, sum3, out);
  for (; i < size; ++i) {
    for (int r = 0; r < 4; ++r) out[r] += a[i] * load(b[r][i]);
  }
}

// out[p] = <a, load(rows[index[p]])> for `count` rows of `size` elements.
template <class T, class Load = LoadPlain>
HWY_INLINE void indexed_dots(const T* HWY_RESTRICT a, const T* HWY_RESTRICT rows, const std::int32_t* index,
                             std::int64_t count, std::int64_t size, T* HWY_RESTRICT out,
                             const Load& load = {}) {
  std::int64_t p = 0;
  for (; p < count; p += 4) {
    const std::int64_t last = count - 1;
    // The last group repeats its final row; the surplus sums are not stored.
    const T* group[4];
    for (std::int64_t r = 0; r < 4; ++r) group[r] = rows + index[p + r < count ? p + r : last] * size;
    T sums[4];
    four_dots(a, group, size, load, sums);
    for (std::int64_t r = 0; r < 4 && p + r < count; ++r) out[p + r] = sums[r];
  }
}

// y[:] (+)= sum_p weight[p] load(rows[index[p]])[:]. The columns are taken in strips that stay in registers.
template <class T, class WeightOf, class Load = LoadPlain>
HWY_INLINE void indexed_sum(const WeightOf& weight_of, const T* HWY_RESTRICT rows, const std::int32_t* index,
                            std::int64_t count, std::int64_t size, bool accumulate, T* HWY_RESTRICT y,
                            const Load& load = {}) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + 4 * lanes <= size; c += 4 * lanes) {
    auto sum0 = accumulate ? hn::LoadU(d, y + c) : hn::Zero(d);
    auto sum1 = accumulate ? hn::LoadU(d, y + c + lanes) : hn::Zero(d);
    auto sum2 = accumulate ? hn::LoadU(d, y + c + 2 * lanes) : hn::Zero(d);
    auto sum3 = accumulate ? hn::LoadU(d, y + c + 3 * lanes) : hn::Zero(d);
    for (std::int64_t p = 0; p < count; ++p) {
      const T* HWY_RESTRICT row = rows + index[p] * size + c;
      const auto w = hn::Set(d, weight_of(p));
      sum0 = hn::MulAdd(w, load(hn::LoadU(d, row)), sum0);
      sum1 = hn::MulAdd(w, load(hn::LoadU(d, row + lanes)), sum1);
      sum2 = hn::MulAdd(w, load(hn::LoadU(d, row + 2 * lanes)), sum2);
      sum3 = hn::MulAdd(w, load(hn::LoadU(d, row + 3 * lanes)), sum3);
    }
    hn::StoreU(sum0, d, y + c);
    hn::StoreU(sum1, d, y + c + lanes);
    hn::StoreU(sum2, d, y + c + 2 * lanes);
    hn::StoreU(sum3, d, y + c + 3 * lanes);
  }
  for (; c + lanes <= size; c += lanes) {
    auto sum = accumulate ? hn::LoadU(d, y + c) : hn::Zero(d);
    for (std::int64_t p = 0; p < count; ++p) {
      sum = hn::MulAdd(hn::Set(d, weight_of(p)), load(hn::LoadU(d, rows + index[p] * size + c)), sum);
    }
    hn::StoreU(sum, d, y + c);
  }
  for (; c < size; ++c) {
    T sum = accumulate ? y[c] : T{0};
    for (std::int64_t p = 0; p < count; ++p) sum += weight_of(p) * load(rows[index[p] * size + c]);
    y[c] = sum;
  }
}

#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE
// How many vectors a row may have for the loops below to keep a row and a sum of rows in registers.
constexpr int kMaxRegisterVectors = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

// A row of kVectors vectors in registers.
template <int kVectors, class T>
struct RegisterRow {
  using D = hn::ScalableTag<T>;
  hn::Vec<D> vector[kVectors];

  HWY_INLINE explicit RegisterRow(const T* row) {
    for (int i = 0; i < kVectors; ++i)
      vector[i] = hn::LoadU(D(), row + i * static_cast<int>(hn::MaxLanes(D())));
  }
};

// The two halves of attention in one loop, four nonzeros at a time: dots of `a` with rows_a, which `combine`
// turns into weights, and the weighted sum of rows_b. Nothing but the weights passes through memory, and the
// fetches of rows_b overlap the dots.
//   dot = <a, load_a(rows_a[index[p]])> + the lanes of `start`
//   combine(p, count, dots, weights): for the nonzeros p .. p + count - 1, count <= 4; both arrays have four
//   elements; beyond the count, the first three dots repeat the last one, and weights are to be 0
//   sum = sum_p weight_p load_b(rows_b[index[p]])
//   store(i, vector i of the sum), after the last combine
// Rows of `a` and rows_a have kA vectors, those of rows_b kB.
template <int kA, int kB, class T, class V, class LoadA, class LoadB, class Combine, class Store>
HWY_INLINE void dots_then_sum(const RegisterRow<kA, T>& a, V start, const T* HWY_RESTRICT rows_a,
                              const LoadA& load_a, const T* HWY_RESTRICT rows_b, const LoadB& load_b,
                              const std::int32_t* HWY_RESTRICT index, std::int64_t count,
                              const Combine& combine, const Store& store) {
  using D = hn::ScalableTag<T>;
  const D d;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  V sum[kB];
  for (int i = 0; i < kB; ++i) sum[i] = hn::Zero(d);
  const auto dot = [&](std::int64_t row) HWY_ATTR {
    const T* HWY_RESTRICT right = rows_a + row * (kA * kLanes);
    V total = start;
    for (int i = 0; i < kA; ++i)
      total = hn::MulAdd(a.vector[i], load_a(hn::LoadU(d, right + i * kLanes)), total);
    return total;
  };
  const auto add = [&](std::int64_t row, T weight) HWY_ATTR {
    const T* HWY_RESTRICT right = rows_b + row * (kB * kLanes);
    const V w = hn::Set(d, weight);
    for (int i = 0; i < kB; ++i) sum[i] = hn::MulAdd(w, load_b(hn::LoadU(d, right + i * kLanes)), sum[i]);
  };
  T dots[4] = {}, weights[4] = {};
  std::int64_t p = 0;
  for (; p + 4 <= count; p += 4) {
    const std::int64_t r0 = index[p], r1 = index[p + 1], r2 = index[p + 2], r3 = index[p + 3];
    four_sums(d, dot(r0), dot(r1), dot(r2), dot(r3), dots);
    combine(p, 4, dots, weights);
    add(r0, weights[0]), add(r1, weights[1]), add(r2, weights[2]), add(r3, weights[3]);
  }
  if (const std::int64_t rest = (count - p) & 3; rest > 0) {  // all that is left: p is where full groups end
    // The last group repeats its final row, with weight 0: how many are left is a toss that no branch should
    // guess.
    const std::int64_t r0 = index[p], r1 = index[p + (rest > 1 ? 1 : 0)], r2 = index[count - 1];
    four_sums(d, dot(r0), dot(r1), dot(r2), hn::Zero(d), dots);
    combine(p, rest, dots, weights);
    add(r0, weights[0]), add(r1, weights[1]), add(r2, weights[2]);
  }
  for (int i = 0; i < kB; ++i) store(i, sum[i]);
}

// sum_p weight_of(p).first load_a(rows_a[index[p]]), and the same of rows_b with the second weight; both are
// stored as by dots_then_sum.
template <int kA, int kB, class T, class WeightsOf, class LoadA, class LoadB, class StoreA, class StoreB>
HWY_INLINE void two_sums(const WeightsOf& weights_of, const T* HWY_RESTRICT rows_a, const LoadA& load_a,
                         const T* HWY_RESTRICT rows_b, const LoadB& load_b,
                         const std::int32_t* HWY_RESTRICT index, std::int64_t count, const StoreA& store_a,
                         const StoreB& store_b) {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  const D d;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  V sum_a[kA], sum_b[kB];
  for (int i = 0; i < kA; ++i) sum_a[i] = hn::Zero(d);
  for (int i = 0; i < kB; ++i) sum_b[i] = hn::Zero(d);
  for (std::int64_t p = 0; p < count; ++p) {
    const T* HWY_RESTRICT a = rows_a + index[p] * (kA * kLanes);
    const T* HWY_RESTRICT b = rows_b + index[p] * (kB * kLanes);
    const auto [weight_a, weight_b] = weights_of(p);
    const V wa = hn::Set(d, weight_a), wb = hn::Set(d, weight_b);
    for (int i = 0; i < kA; ++i) sum_a[i] = hn::MulAdd(wa, load_a(hn::LoadU(d, a + i * kLanes)), sum_a[i]);
    for (int i = 0; i < kB; ++i) sum_b[i] = hn::MulAdd(wb, load_b(hn::LoadU(d, b + i * kLanes)), sum_b[i]);
  }
  for (int i = 0; i < kA; ++i) store_a(i, sum_a[i]);
  for (int i = 0; i < kB; ++i) store_b(i, sum_b[i]);
}
#endif

}  // namespace topomask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
