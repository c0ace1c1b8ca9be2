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

// The sums of the lanes of four vectors. For float they are interleaved pairwise, three shuffles a sum; the
// blocks of 128 bits are added last, through memory.
template <class V>
HWY_INLINE void four_sums(hn::ScalableTag<double> d, V a, V b, V c, V e, double* HWY_RESTRICT out) {
  out[0] = hn::GetLane(hn::SumOfLanes(d, a));
  out[1] = hn::GetLane(hn::SumOfLanes(d, b));
  out[2] = hn::GetLane(hn::SumOfLanes(d, c));
  out[3] = hn::GetLane(hn::SumOfLanes(d, e));
}

template <class V>
HWY_INLINE void four_sums(hn::ScalableTag<float> d, V a, V b, V c, V e, float* HWY_RESTRICT out) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  out[0] = hn::GetLane(a), out[1] = hn::GetLane(b), out[2] = hn::GetLane(c), out[3] = hn::GetLane(e);
#else
  const hn::Repartition<double, decltype(d)> pairs;  // only moves pairs of floats about
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const V sums =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce))),
              hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, ce))));
  HWY_ALIGN float blocks[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(sums, d, blocks);
  const hn::FixedTag<float, 4> four;
  auto total = hn::Load(four, blocks);
  for (std::size_t block = 4; block < hn::Lanes(d); block += 4)
    total = hn::Add(total, hn::Load(four, blocks + block));
  hn::StoreU(total, four, out);
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
struct LoadRelu {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Max(x, hn::Zero(hn::DFromV<V>()));
  }
  HWY_INLINE float operator()(float x) const { return x > 0 ? x : 0; }
  HWY_INLINE double operator()(double x) const { return x > 0 ? x : 0; }
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
    const auto feature = hn::Add(hn::Max(hn::LoadU(d, x + i), hn::Zero(d)), hn::Set(d, epsilon));
    hn::StoreU(feature, d, out + i);
    sums = hn::Add(sums, feature);
  }
  T sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < size; ++i) sum += out[i] = (x[i] > 0 ? x[i] : 0) + epsilon;
  return sum;
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

}  // namespace topomask::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
