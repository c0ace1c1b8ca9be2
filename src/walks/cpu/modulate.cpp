#include "walks/cpu/modulate.h"

#include <algorithm>
#include <bit>
#include <type_traits>
#include <vector>

#include "core/avx512.h"
#include "core/parallel.h"

namespace topomask {

namespace {

constexpr std::int64_t kEntriesPerTask = 16384, kEntriesPerBlock = 512;

// How many deposits an entry has is a coin toss, and a loop over them would be guessed wrong at every other
// entry. Hence blocks of entries: products first, into an array that is read with what stands behind it; sums
// after.
template <class Scalar>
class Block {
 public:
  Block(const DepositView& deposits, std::int64_t terms)
      : deposits_(deposits), terms_(terms), f_(static_cast<std::size_t>(terms) + 1, Scalar{0}) {}

  void set_modulation(const Scalar* f) { std::copy_n(f, terms_, f_.begin()); }  // 0 beyond the last term

  void run(std::int64_t begin, std::int64_t end, Scalar* out) {
    const std::int64_t first = deposits_.deposit_ptr[begin], count = deposits_.deposit_ptr[end] - first;
    product_.resize(static_cast<std::size_t>(count) + 1);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t hop = std::min<std::int64_t>(deposits_.hop[first + i], terms_);
      product_[i] = static_cast<Scalar>(deposits_.load[first + i]) * f_[hop];
    }
    product_[count] = 0;  // stands for the deposits that an entry does not have
    for (std::int64_t entry = begin; entry < end; ++entry) {
      const std::int64_t at = deposits_.deposit_ptr[entry] - first;
      const std::int64_t end_at = deposits_.deposit_ptr[entry + 1] - first;
      const auto deposit = [&](std::int64_t i) { return product_[i < end_at ? i : count]; };
      Scalar sum = deposit(at) + deposit(at + 1) + deposit(at + 2);
      for (std::int64_t i = at + 3; i < end_at; ++i) sum += product_[i];
      out[entry] = sum;
    }
  }

 private:
  const DepositView& deposits_;
  std::int64_t terms_;
  std::vector<Scalar> f_, product_;
};

#if HWY_ARCH_X86_64
// The same, to the last bit, for 16 deposits or entries at a time.
class BlockAvx512 {
 public:
  static constexpr std::int64_t kLanes = 16, kMaxTerms = 2 * kLanes;

  BlockAvx512(const DepositView& deposits, std::int64_t terms) : deposits_(deposits), terms_(terms) {}

  void set_modulation(const float* f) { std::copy_n(f, terms_, f_); }

  TOPOMASK_AVX512 void run(std::int64_t begin, std::int64_t end, float* out) {
    const std::int64_t first = deposits_.deposit_ptr[begin], count = deposits_.deposit_ptr[end] - first;
    product_.resize(static_cast<std::size_t>(count + 2 * kLanes));
    multiply(first, count);
    std::int64_t entry = begin;
    for (; entry + kLanes <= end; entry += kLanes) {
      const float* product = product_.data() + (deposits_.deposit_ptr[entry] - first);
      if (!sum_group(deposits_.deposit_ptr + entry, product, out + entry)) {
        sum_one_by_one(entry, entry + kLanes, first, out);
      }
    }
    sum_one_by_one(entry, end, first, out);
  }

 private:
  static constexpr std::int64_t kMaxGroup = 60;  // deposits of 16 entries, as bits of a word

  TOPOMASK_AVX512 void multiply(std::int64_t first, std::int64_t count) {
    const __m512 low = _mm512_loadu_ps(f_), high = _mm512_loadu_ps(f_ + kLanes);
    const __m512i terms = _mm512_set1_epi32(static_cast<int>(terms_));
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const auto lanes = static_cast<__mmask16>(count - i >= kLanes ? 0xFFFF : (1u << (count - i)) - 1);
      const __m512i hop =
          _mm512_maskz_cvtepi16_epi32(lanes, _mm256_maskz_loadu_epi16(lanes, deposits_.hop + first + i));
      const __m512 f = _mm512_permutex2var_ps(low, hop, high);
      const __m512 load = _mm512_maskz_loadu_ps(lanes, deposits_.load + first + i);
      _mm512_storeu_ps(product_.data() + i,
                       _mm512_maskz_mul_ps(_mm512_cmplt_epi32_mask(hop, terms), load, f));
    }
  }

  TOPOMASK_AVX512 static std::uint64_t any_bits(__m512i words) {
    const __m256i four = _mm256_or_si256(_mm512_maskz_extracti64x4_epi64(0xF, words, 0),
                                         _mm512_maskz_extracti64x4_epi64(0xF, words, 1));
    const __m128i two = _mm_or_si128(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
    return static_cast<std::uint64_t>(_mm_extract_epi64(two, 0) | _mm_extract_epi64(two, 1));
  }

  // ptr: where the deposits of 16 entries begin; product: those of the first. False where the entries have
  // too many deposits, or one of them has none.
  TOPOMASK_AVX512 static bool sum_group(const std::int64_t* ptr, const float* product, float* out) {
    const __m512i base = _mm512_set1_epi64(ptr[0]), one = _mm512_set1_epi64(1);
    const auto bits_of = [&](const std::int64_t* at) TOPOMASK_AVX512 {
      return _mm512_maskz_sllv_epi64(0xFF, one, _mm512_sub_epi64(_mm512_loadu_si512(at), base));
    };
    const std::uint64_t firsts = any_bits(_mm512_or_si512(bits_of(ptr), bits_of(ptr + 8)));
    const std::int64_t count = ptr[kLanes] - ptr[0];
    if (count > kMaxGroup || std::popcount(firsts) != kLanes || firsts >> count != 0) return false;
    const std::uint64_t begins = firsts | std::uint64_t{1} << count;
    // Where an entry begins that has two, three, four, more deposits.
    const std::uint64_t two = firsts & ~(begins >> 1), three = two & ~(begins >> 2),
                        four = three & ~(begins >> 3), more = four & ~(begins >> 4);
    std::int64_t done = 0;
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const auto lanes = [&](std::uint64_t bits) { return static_cast<__mmask16>(bits >> i); };
      __m512 sum = _mm512_loadu_ps(product + i);
      sum = _mm512_mask_add_ps(sum, lanes(two), sum, _mm512_loadu_ps(product + i + 1));
      sum = _mm512_mask_add_ps(sum, lanes(three), sum, _mm512_loadu_ps(product + i + 2));
      sum = _mm512_mask_add_ps(sum, lanes(four), sum, _mm512_loadu_ps(product + i + 3));
      const int entries = std::popcount(static_cast<std::uint16_t>(lanes(firsts)));
      _mm512_mask_storeu_ps(out + done, static_cast<__mmask16>((1u << entries) - 1),
                            _mm512_maskz_compress_ps(lanes(firsts), sum));
      done += entries;
    }
    for (std::uint64_t left = more; left != 0; left &= left - 1) {
      const int at = std::countr_zero(left);
      const int entry = std::popcount(firsts & ((std::uint64_t{1} << at) - 1));
      for (std::int64_t i = ptr[entry] + 4; i < ptr[entry + 1]; ++i) out[entry] += product[i - ptr[0]];
    }
    return true;
  }

  void sum_one_by_one(std::int64_t begin, std::int64_t end, std::int64_t first, float* out) const {
    for (std::int64_t entry = begin; entry < end; ++entry) {
      float sum = 0;
      for (std::int64_t i = deposits_.deposit_ptr[entry]; i < deposits_.deposit_ptr[entry + 1]; ++i) {
        sum += product_[i - first];
      }
      out[entry] = sum;
    }
  }

  const DepositView& deposits_;
  std::int64_t terms_;
  float f_[kMaxTerms] = {};
  std::vector<float> product_;
};

// Adds up load * grad by hop, in double. A block of deposits at a time: each is given the gradient of its
// entry, then every hop takes its own of the products, 32 at a time.
class SumsByHopAvx512 {
 public:
  SumsByHopAvx512(const DepositView& deposits, std::int64_t terms) : deposits_(deposits), terms_(terms) {}

  TOPOMASK_AVX512 void add(std::int64_t begin, std::int64_t end, const float* grad, double* sums) {
    const std::int64_t first = deposits_.deposit_ptr[begin], count = deposits_.deposit_ptr[end] - first;
    grad_.resize(static_cast<std::size_t>(count + kMostCopies));
    product_.resize(static_cast<std::size_t>(count + kLanes));
    copy_to_deposits(begin, end, grad);
    multiply(first, count);
    for (std::int64_t hop = 0; hop < terms_; ++hop) sums[hop] += sum_of(hop, first, count);
  }

 private:
  static constexpr std::int64_t kLanes = 32, kDoubles = 8, kMostCopies = 4;

  void copy_to_deposits(std::int64_t begin, std::int64_t end, const float* grad) {
    const std::int64_t first = deposits_.deposit_ptr[begin];
    for (std::int64_t entry = begin; entry < end; ++entry) {
      // No branch on the number of deposits: the next entry overwrites what is too much.
      float* deposit = grad_.data() + (deposits_.deposit_ptr[entry] - first);
      const std::int64_t count = deposits_.deposit_ptr[entry + 1] - deposits_.deposit_ptr[entry];
      for (std::int64_t i = 0; i < kMostCopies; ++i) deposit[i] = grad[entry];
      for (std::int64_t i = kMostCopies; i < count; ++i) deposit[i] = grad[entry];
    }
  }

  TOPOMASK_AVX512 void multiply(std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; i += kDoubles) {
      const auto inside = static_cast<__mmask8>(count - i >= kDoubles ? 0xFF : (1u << (count - i)) - 1);
      const __m512d grad = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(inside, grad_.data() + i));
      const __m512d load = _mm512_cvtps_pd(_mm256_maskz_loadu_ps(inside, deposits_.load + first + i));
      _mm512_storeu_pd(product_.data() + i, _mm512_mul_pd(load, grad));
    }
  }

  TOPOMASK_AVX512 double sum_of(std::int64_t hop, std::int64_t first, std::int64_t count) const {
    const __m512i wanted = _mm512_set1_epi16(static_cast<short>(hop));
    __m512d sum[4] = {_mm512_setzero_pd(), _mm512_setzero_pd(), _mm512_setzero_pd(), _mm512_setzero_pd()};
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const auto inside = static_cast<__mmask32>(count - i >= kLanes ? ~0u : (1u << (count - i)) - 1);
      const __m512i hops = _mm512_maskz_loadu_epi16(inside, deposits_.hop + first + i);
      const __mmask32 own = _mm512_mask_cmpeq_epi16_mask(inside, hops, wanted);
#pragma GCC unroll 4
      for (int part = 0; part < 4; ++part) {
        const double* product = product_.data() + i + part * kDoubles;
        sum[part] = _mm512_mask_add_pd(sum[part], static_cast<__mmask8>(own >> (part * kDoubles)), sum[part],
                                       _mm512_loadu_pd(product));
      }
    }
    return _mm512_reduce_add_pd(_mm512_add_pd(_mm512_add_pd(sum[0], sum[1]), _mm512_add_pd(sum[2], sum[3])));
  }

  const DepositView& deposits_;
  std::int64_t terms_;
  std::vector<float> grad_;
  std::vector<double> product_;
};
#endif

// The same for any type and machine.
template <class Scalar>
class SumsByHop {
 public:
  SumsByHop(const DepositView& deposits, std::int64_t terms) : deposits_(deposits), terms_(terms) {}

  void add(std::int64_t begin, std::int64_t end, const Scalar* grad, double* sums) const {
    for (std::int64_t entry = begin; entry < end; ++entry) {
      for (std::int64_t i = deposits_.deposit_ptr[entry]; i < deposits_.deposit_ptr[entry + 1]; ++i) {
        if (deposits_.hop[i] < terms_) sums[deposits_.hop[i]] += double{deposits_.load[i]} * grad[entry];
      }
    }
  }

 private:
  const DepositView& deposits_;
  std::int64_t terms_;
};

template <class Blocks, class Scalar>
void modulate_in_blocks(const DepositView& deposits, const Scalar* f, std::int64_t heads, std::int64_t terms,
                        Scalar* values) {
  for_runs(deposits.nnz, kEntriesPerTask, [&](std::int64_t begin, std::int64_t end) {
    Blocks block(deposits, terms);
    for (std::int64_t head = 0; head < heads; ++head) {
      block.set_modulation(f + head * terms);
      for (std::int64_t at = begin; at < end; at += kEntriesPerBlock) {
        block.run(at, std::min(end, at + kEntriesPerBlock), values + head * deposits.nnz);
      }
    }
  });
}

template <class Sums, class Scalar>
void sum_in_blocks(const DepositView& deposits, const Scalar* grad_values, std::int64_t heads,
                   std::int64_t terms, Scalar* grad_f) {
  // Partial sums over fixed runs of entries, added in order: the same result for any number of threads. Sums
  // run in double, since a gradient of f adds up every entry of the mask.
  const std::int64_t num_tasks = (deposits.nnz + kEntriesPerTask - 1) / kEntriesPerTask;
  std::vector<double> partial(static_cast<std::size_t>(num_tasks * heads * terms), 0.0);
  for_runs(num_tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    Sums sums(deposits, terms);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t last = std::min(deposits.nnz, (task + 1) * kEntriesPerTask);
      for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t at = task * kEntriesPerTask; at < last; at += kEntriesPerBlock) {
          sums.add(at, std::min(last, at + kEntriesPerBlock), grad_values + head * deposits.nnz,
                   partial.data() + (task * heads + head) * terms);
        }
      }
    }
  });
  for (std::int64_t k = 0; k < heads * terms; ++k) {
    double sum = 0;
    for (std::int64_t task = 0; task < num_tasks; ++task) sum += partial[task * heads * terms + k];
    grad_f[k] = static_cast<Scalar>(sum);
  }
}

}  // namespace

template <class Scalar>
void modulate(const DepositView& deposits, const Scalar* f, std::int64_t heads, std::int64_t terms,
              Scalar* values) {
#if HWY_ARCH_X86_64
  if constexpr (std::is_same_v<Scalar, float>) {
    if (has_avx512() && terms <= BlockAvx512::kMaxTerms) {
      modulate_in_blocks<BlockAvx512>(deposits, f, heads, terms, values);
      return;
    }
  }
#endif
  modulate_in_blocks<Block<Scalar>>(deposits, f, heads, terms, values);
}

template <class Scalar>
void modulate_backward(const DepositView& deposits, const Scalar* grad_values, std::int64_t heads,
                       std::int64_t terms, Scalar* grad_f) {
#if HWY_ARCH_X86_64
  if constexpr (std::is_same_v<Scalar, float>) {
    if (has_avx512()) {
      sum_in_blocks<SumsByHopAvx512>(deposits, grad_values, heads, terms, grad_f);
      return;
    }
  }
#endif
  sum_in_blocks<SumsByHop<Scalar>>(deposits, grad_values, heads, terms, grad_f);
}

template void modulate(const DepositView&, const float*, std::int64_t, std::int64_t, float*);
template void modulate(const DepositView&, const double*, std::int64_t, std::int64_t, double*);
template void modulate_backward(const DepositView&, const float*, std::int64_t, std::int64_t, float*);
template void modulate_backward(const DepositView&, const double*, std::int64_t, std::int64_t, double*);

}  // namespace topomask
