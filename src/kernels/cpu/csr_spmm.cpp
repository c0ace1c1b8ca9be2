#include "kernels/cpu/csr_spmm.h"

#include <algorithm>

#include "core/parallel.h"

namespace topomask {
namespace {

// Columns that one row accumulates at a time: they stay in registers while its edges are read.
constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kGrain = 1 << 14;  // multiply-adds that make a thread worth waking

// `width` is kBlock wherever it can be, so that the compiler unrolls the inner loops.
template <class Real>
inline void accumulate_row(const CsrView& graph, std::int64_t node, Real coefficient, const Real* x,
                           const Real* inner, std::int64_t columns, std::int64_t width, Real* out) {
  Real sum[kBlock];
  for (std::int64_t c = 0; c < width; ++c) sum[c] = coefficient * x[node * columns + c];
  for (std::int64_t e = graph.row_ptr[node]; e < graph.row_ptr[node + 1]; ++e) {
    const Real weight = static_cast<Real>(graph.weight[e]);
    const Real* source = inner + graph.col[e] * columns;
    for (std::int64_t c = 0; c < width; ++c) sum[c] += weight * source[c];
  }
  std::copy_n(sum, width, out + node * columns);
}

}  // namespace

template <class Real>
void horner_step(const CsrView& graph, Real coefficient, const Real* x, const Real* inner,
                 std::int64_t columns, Real* out) {
  if (graph.num_nodes == 0 || columns == 0) return;
  const std::int64_t work_per_row = (1 + graph.num_entries() / graph.num_nodes) * columns;
  parallel_for(graph.num_nodes, std::max<std::int64_t>(1, kGrain / work_per_row),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t node = begin; node < end; ++node) {
                   std::int64_t c = 0;
                   for (; c + kBlock <= columns; c += kBlock) {
                     accumulate_row(graph, node, coefficient, x + c, inner + c, columns, kBlock, out + c);
                   }
                   if (c < columns) {
                     accumulate_row(graph, node, coefficient, x + c, inner + c, columns, columns - c,
                                    out + c);
                   }
                 }
               });
}

template void horner_step<float>(const CsrView&, float, const float*, const float*, std::int64_t, float*);
template void horner_step<double>(const CsrView&, double, const double*, const double*, std::int64_t,
                                  double*);

}  // namespace topomask
