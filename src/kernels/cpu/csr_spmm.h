// One step of Horner's rule on compressed sparse rows.
#pragma once

#include <cstdint>

#include "topomask/csr.h"

namespace topomask {

// out = coefficient * x + W * inner; x, inner and out are [N, columns], row major, and `out` overlaps
// neither. A row is summed in the order of its columns by one thread: the result does not depend on the
// number of threads.
template <class Real>
void horner_step(const CsrView& graph, Real coefficient, const Real* x, const Real* inner,
                 std::int64_t columns, Real* out);

extern template void horner_step<float>(const CsrView&, float, const float*, const float*, std::int64_t,
                                        float*);
extern template void horner_step<double>(const CsrView&, double, const double*, const double*, std::int64_t,
                                         double*);

}  // namespace topomask
