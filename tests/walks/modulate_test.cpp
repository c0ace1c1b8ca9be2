// Values for a modulation, to the last bit, however they are computed, and the gradient of it.
#include "walks/cpu/modulate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"

namespace topomask {
namespace {

struct Deposits {
  std::vector<std::int64_t> ptr = {0};
  std::vector<std::int16_t> hop;
  std::vector<float> load;

  // Entries of one deposit mostly, up to `most` now and then, and a few of none.
  Deposits(std::int64_t entries, std::uint64_t most, std::uint64_t hops) {
    std::uint64_t state = 7;
    const auto below = [&](std::uint64_t bound) {
      state = derive_seed(state, 1);
      return state % bound;
    };
    for (std::int64_t entry = 0; entry < entries; ++entry) {
      const std::uint64_t count = below(200) == 0 ? 0 : 1 + (below(3) == 0 ? below(most) : 0);
      for (std::uint64_t i = 0; i < count; ++i) {
        hop.push_back(static_cast<std::int16_t>(below(hops)));
        load.push_back(static_cast<float>(below(1000)) / 700 - 0.5f);
      }
      ptr.push_back(static_cast<std::int64_t>(hop.size()));
    }
  }
  DepositView view() const {
    return {static_cast<std::int64_t>(ptr.size()) - 1, ptr.data(), hop.data(), load.data()};
  }
};

template <class Scalar>
void expect_sums_in_order(const Deposits& deposits, std::int64_t terms) {
  constexpr std::int64_t kHeads = 2;
  const DepositView view = deposits.view();
  std::vector<Scalar> f, values(static_cast<std::size_t>(kHeads * view.nnz), Scalar{-1});
  for (std::int64_t i = 0; i < kHeads * terms; ++i) f.push_back(Scalar(1) / Scalar(i + 3));
  modulate(view, f.data(), kHeads, terms, values.data());
  for (std::int64_t head = 0; head < kHeads; ++head) {
    for (std::int64_t entry = 0; entry < view.nnz; ++entry) {
      Scalar sum = 0;
      for (std::int64_t i = view.deposit_ptr[entry]; i < view.deposit_ptr[entry + 1]; ++i) {
        const Scalar factor = view.hop[i] < terms ? f[head * terms + view.hop[i]] : Scalar{0};
        const Scalar product = static_cast<Scalar>(view.load[i]) * factor;
        sum += product;
      }
      ASSERT_EQ(values[head * view.nnz + entry], sum) << "entry " << entry << ", head " << head;
    }
  }
}

TEST(Modulate, AddsDepositsInOrder) {
  for (const std::int64_t entries : {1, 15, 16, 17, 1000, 40000}) {
    for (const std::uint64_t most : {1, 3, 6, 90}) {  // few enough for a word of bits, and too many
      for (const std::int64_t terms : {1, 11, 16, 17, 32, 33, 50}) {
        SCOPED_TRACE(::testing::Message() << entries << " entries, " << most << " deposits, " << terms);
        const Deposits deposits(entries, most, 40);  // hops beyond the terms among them
        expect_sums_in_order<float>(deposits, terms);
        if (HasFatalFailure()) return;
        expect_sums_in_order<double>(deposits, terms);
        if (HasFatalFailure()) return;
      }
    }
  }
}

template <class Scalar>
void expect_gradient(const Deposits& deposits, std::int64_t terms) {
  constexpr std::int64_t kHeads = 2;
  const DepositView view = deposits.view();
  std::vector<Scalar> grad;
  for (std::int64_t i = 0; i < kHeads * view.nnz; ++i) grad.push_back(Scalar((i * 37) % 101) / 50 - 1);
  std::vector<Scalar> grad_f(static_cast<std::size_t>(kHeads * terms), Scalar{-1});
  modulate_backward(view, grad.data(), kHeads, terms, grad_f.data());
  for (std::int64_t head = 0; head < kHeads; ++head) {
    std::vector<double> sum(static_cast<std::size_t>(terms), 0.0), size = sum;
    for (std::int64_t entry = 0; entry < view.nnz; ++entry) {
      for (std::int64_t i = view.deposit_ptr[entry]; i < view.deposit_ptr[entry + 1]; ++i) {
        if (view.hop[i] >= terms) continue;
        const double term = double{view.load[i]} * double{grad[head * view.nnz + entry]};
        sum[view.hop[i]] += term;
        size[view.hop[i]] += std::abs(term);
      }
    }
    for (std::int64_t k = 0; k < terms; ++k) {
      // Summed in double, whatever the type: only the result is rounded to it.
      const double rounding = std::numeric_limits<Scalar>::epsilon() * std::abs(sum[k]) + 1e-14 * size[k];
      ASSERT_NEAR(grad_f[head * terms + k], sum[k], rounding) << "hop " << k << ", head " << head;
    }
  }
}

TEST(Modulate, GradientAddsUpByHop) {
  for (const std::int64_t entries : {1, 15, 33, 513, 40000}) {
    for (const std::uint64_t most : {1, 3, 6, 90}) {
      for (const std::int64_t terms : {1, 11, 33, 50}) {
        SCOPED_TRACE(::testing::Message() << entries << " entries, " << most << " deposits, " << terms);
        const Deposits deposits(entries, most, 40);
        expect_gradient<float>(deposits, terms);
        if (HasFatalFailure()) return;
        expect_gradient<double>(deposits, terms);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Partial sums of fixed runs: no number of threads changes the result by a bit.
TEST(Modulate, GradientIsThatOfAnyNumberOfThreads) {
  const Deposits deposits(100000, 6, 12);
  const DepositView view = deposits.view();
  std::vector<float> grad;
  for (std::int64_t i = 0; i < view.nnz; ++i) grad.push_back(static_cast<float>((i * 37) % 101) / 50 - 1);
  std::vector<float> one(12), several(12);
  const int before = num_threads();
  set_num_threads(1);
  modulate_backward(view, grad.data(), 1, 12, one.data());
  set_num_threads(5);
  modulate_backward(view, grad.data(), 1, 12, several.data());
  set_num_threads(before);
  EXPECT_EQ(one, several);
}

}  // namespace
}  // namespace topomask
