#include "masks/cpu/hypercube.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"

namespace topomask {

namespace {

// Rows that stay in the second-level cache while all their bits but the highest are mixed.
constexpr std::int64_t kBlockBytes = 256 << 10;
constexpr std::int64_t kGrainElements = 1 << 14;

template <class Real>
void mix_rows(Real* low, Real* high, std::int64_t columns, Real p, Real q) {
  for (std::int64_t c = 0; c < columns; ++c) {
    const Real a = low[c], b = high[c];
    low[c] = p * a + q * b;
    high[c] = q * a + p * b;
  }
}

// All pairs of `rows` rows that differ in one of the bits below `bits`.
template <class Real>
void mix_block(Real* block, int bits, std::int64_t columns, Real p, Real q) {
  for (int bit = 0; bit < bits; ++bit) {
    const std::int64_t half = std::int64_t{1} << bit;
    for (std::int64_t first = 0; first < (std::int64_t{1} << bits); first += 2 * half)
      mix_rows(block + first * columns, block + (first + half) * columns, half * columns, p, q);
  }
}

}  // namespace

template <class Real>
void hypercube_heat(int dimension, const Real* t, std::int64_t heads, std::int64_t columns, Real* values) {
  if (columns == 0) return;
  int low_bits = 0;
  while (low_bits < dimension &&
         (std::int64_t{2} << low_bits) * columns * static_cast<std::int64_t>(sizeof(Real)) <= kBlockBytes)
    ++low_bits;
  const std::int64_t blocks = std::int64_t{1} << (dimension - low_bits);  // in a head
  const std::int64_t block_elements = (std::int64_t{1} << low_bits) * columns;
  const std::int64_t grain = std::max<std::int64_t>(1, kGrainElements / block_elements);
  // expm1 keeps q exact for small t.
  const auto off_diagonal = [&](std::int64_t head) { return -std::expm1(-2 * t[head]) / 2; };
  parallel_for(heads * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const Real q = off_diagonal(block / blocks);
      mix_block(values + block * block_elements, low_bits, columns, 1 - q, q);
    }
  });
  // The high bits mix whole blocks.
  for (int bit = low_bits; bit < dimension; ++bit) {
    const std::int64_t half = std::int64_t{1} << (bit - low_bits);
    parallel_for(heads * blocks / 2, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t pair = begin; pair < end; ++pair) {
        const std::int64_t low = pair / half * 2 * half + pair % half;
        const Real q = off_diagonal(low / blocks);
        mix_rows(values + low * block_elements, values + (low + half) * block_elements, block_elements, 1 - q,
                 q);
      }
    });
  }
}

template <class Real>
void hypercube_energy(int dimension, std::int64_t heads, std::int64_t columns, const Real* x, const Real* z,
                      Real* result) {
  const std::int64_t n = std::int64_t{1} << dimension;
  // One sum per row, added up in order, so that the result does not depend on the threads.
  std::vector<double> row_sum(static_cast<std::size_t>(heads * n));
  const std::int64_t work = std::max<std::int64_t>(1, columns * (dimension + 1));
  parallel_for(heads * n, std::max<std::int64_t>(1, kGrainElements / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t base = row / n * n, node = row % n;
                   double sum = 0;
                   for (int bit = 0; bit < dimension; ++bit) {
                     const Real* other = z + (base + (node ^ (std::int64_t{1} << bit))) * columns;
                     for (std::int64_t c = 0; c < columns; ++c)
                       sum += static_cast<double>(x[row * columns + c]) *
                              (static_cast<double>(z[row * columns + c]) - other[c]);
                   }
                   row_sum[row] = sum;
                 }
               });
  for (std::int64_t head = 0; head < heads; ++head) {
    double total = 0;
    for (std::int64_t node = 0; node < n; ++node) total += row_sum[head * n + node];
    result[head] = static_cast<Real>(total);
  }
}

template void hypercube_heat<float>(int, const float*, std::int64_t, std::int64_t, float*);
template void hypercube_heat<double>(int, const double*, std::int64_t, std::int64_t, double*);
template void hypercube_energy<float>(int, std::int64_t, std::int64_t, const float*, const float*, float*);
template void hypercube_energy<double>(int, std::int64_t, std::int64_t, const double*, const double*,
                                       double*);

}  // namespace topomask
