#include "walks/cpu/modulate.h"

#include <algorithm>
#include <vector>

#include "core/parallel.h"

namespace topomask {

namespace {
constexpr std::int64_t kEntriesPerTask = 16384;
}

template <class Scalar>
void modulate(const DepositView& deposits, const Scalar* f, std::int64_t heads, std::int64_t terms,
              Scalar* values) {
  parallel_for(deposits.nnz, kEntriesPerTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const Scalar* f_head = f + head * terms;
      Scalar* out = values + head * deposits.nnz;
      for (std::int64_t entry = begin; entry < end; ++entry) {
        Scalar sum = 0;
        for (std::int64_t i = deposits.deposit_ptr[entry]; i < deposits.deposit_ptr[entry + 1]; ++i) {
          if (deposits.hop[i] < terms) sum += static_cast<Scalar>(deposits.load[i]) * f_head[deposits.hop[i]];
        }
        out[entry] = sum;
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
