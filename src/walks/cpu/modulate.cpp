#include "walks/cpu/modulate.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"

namespace topomask {

namespace {
constexpr std::int64_t kEntriesPerTask = 16384, kEntriesPerBlock = 512;
}

template <class Scalar>
void modulate(const DepositView& deposits, const Scalar* f, std::int64_t heads, std::int64_t terms,
              Scalar* values) {
  parallel_for(deposits.nnz, kEntriesPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Scalar> padded(static_cast<std::size_t>(terms) + 1, Scalar{0}), product;
    for (std::int64_t head = 0; head < heads; ++head) {
      std::copy_n(f + head * terms, terms, padded.begin());  // hops beyond the last term give 0
      Scalar* out = values + head * deposits.nnz;
      // Products first, sums after: how many deposits an entry has is a coin toss, and a loop over them would
      // be guessed wrong at every other entry.
      for (std::int64_t block = begin; block < end; block += kEntriesPerBlock) {
        const std::int64_t block_end = std::min(end, block + kEntriesPerBlock);
        const std::int64_t first = deposits.deposit_ptr[block];
        const std::int64_t count = deposits.deposit_ptr[block_end] - first;
        product.resize(static_cast<std::size_t>(count) + 1);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t hop = std::min<std::int64_t>(deposits.hop[first + i], terms);
          product[i] = static_cast<Scalar>(deposits.load[first + i]) * padded[hop];
        }
        product[count] = 0;  // stands for the deposits that an entry does not have
        for (std::int64_t entry = block; entry < block_end; ++entry) {
          const std::int64_t at = deposits.deposit_ptr[entry] - first;
          const std::int64_t end_at = deposits.deposit_ptr[entry + 1] - first;
          const auto deposit = [&](std::int64_t i) { return product[i < end_at ? i : count]; };
          Scalar sum = deposit(at) + deposit(at + 1) + deposit(at + 2);
          for (std::int64_t i = at + 3; i < end_at; ++i) sum += product[i];
          out[entry] = sum;
        }
      }
    }
  });
}

template <class Scalar>
void modulate_backward(const DepositView& deposits, const Scalar* grad_values, std::int64_t heads,
                       std::int64_t terms, Scalar* grad_f) {
  // Partial sums over fixed runs of entries, added in order: the same result for any number of threads. Sums
  // run in double, since a gradient of f adds up every entry of the mask.
  const std::int64_t num_tasks = (deposits.nnz + kEntriesPerTask - 1) / kEntriesPerTask;
  std::vector<double> partial(static_cast<std::size_t>(num_tasks * heads * terms), 0.0);
  parallel_for(num_tasks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t last = std::min(deposits.nnz, (task + 1) * kEntriesPerTask);
      for (std::int64_t head = 0; head < heads; ++head) {
        double* sums = partial.data() + (task * heads + head) * terms;
        const Scalar* grad = grad_values + head * deposits.nnz;
        for (std::int64_t entry = task * kEntriesPerTask; entry < last; ++entry) {
          for (std::int64_t i = deposits.deposit_ptr[entry]; i < deposits.deposit_ptr[entry + 1]; ++i) {
            if (deposits.hop[i] < terms) sums[deposits.hop[i]] += double{deposits.load[i]} * grad[entry];
          }
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

template void modulate(const DepositView&, const float*, std::int64_t, std::int64_t, float*);
template void modulate(const DepositView&, const double*, std::int64_t, std::int64_t, double*);
template void modulate_backward(const DepositView&, const float*, std::int64_t, std::int64_t, float*);
template void modulate_backward(const DepositView&, const double*, std::int64_t, std::int64_t, double*);

}  // namespace topomask
