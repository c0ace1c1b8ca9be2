// The heat kernel of the hypercube: the tensor product over the d bits of [[p, q], [q, p]] with p = (1 +
// e^-2t) / 2 and q = (1 - e^-2t) / 2, which is exp(-t (D - A)).
#pragma once

#include <cstdint>

namespace topomask {

// In place on values [heads, 2^dimension, columns]; t: [heads].
template <class Real>
void hypercube_heat(int dimension, const Real* t, std::int64_t heads, std::int64_t columns, Real* values);

// result_h = <x_h, (D - A) z_h> over nodes and columns; x, z: [heads, 2^dimension, columns].
template <class Real>
void hypercube_energy(int dimension, std::int64_t heads, std::int64_t columns, const Real* x, const Real* z,
                      Real* result);

extern template void hypercube_heat<float>(int, const float*, std::int64_t, std::int64_t, float*);
extern template void hypercube_heat<double>(int, const double*, std::int64_t, std::int64_t, double*);
extern template void hypercube_energy<float>(int, std::int64_t, std::int64_t, const float*, const float*,
                                             float*);
extern template void hypercube_energy<double>(int, std::int64_t, std::int64_t, const double*, const double*,
                                              double*);

}  // namespace topomask
