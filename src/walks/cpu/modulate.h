// Numeric half of the features: values for a modulation f, and the gradient with respect to it.
#pragma once

#include <cstdint>

namespace topomask {

struct DepositView {
  std::int64_t nnz = 0;
  const std::int64_t* deposit_ptr = nullptr;  // [nnz+1]
  const std::int16_t* hop = nullptr;          // [deposits]
  const float* load = nullptr;                // [deposits]
};

// values[h, e] = sum over deposits of entry e of load * f[h, hop], with f = 0 beyond `terms`.
// f: [heads, terms], values: [heads, nnz].
template <class Scalar>
void modulate(const DepositView& deposits, const Scalar* f, std::int64_t heads, std::int64_t terms,
              Scalar* values);

// grad_f[h, k] = sum over entries e and their deposits at hop k of load * grad_values[h, e].
template <class Scalar>
void modulate_backward(const DepositView& deposits, const Scalar* grad_values, std::int64_t heads,
                       std::int64_t terms, Scalar* grad_f);

}  // namespace topomask
