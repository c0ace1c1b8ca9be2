// Truncated series sum_k coefficients[k] W^k, dense and as an operator, both by Horner's rule.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "core/check.h"
#include "kernels/cpu/csr_spmm.h"
#include "topomask/kernels.h"

namespace topomask {
namespace {

std::size_t used_terms(const std::vector<double>& coefficients) {
  std::size_t used = coefficients.size();
  while (used > 0 && coefficients[used - 1] == 0.0) --used;
  return used;
}

template <class Real>
at::Tensor apply_typed(const Graph& graph, const std::vector<double>& coefficients, const at::Tensor& x) {
  const std::size_t used = used_terms(coefficients);
  if (used == 0) return at::zeros_like(x);
  const std::int64_t columns = x.dim() == 1 ? 1 : x.size(1);
  const CsrView view = graph.view();
  const Real* input = x.const_data_ptr<Real>();
  at::Tensor inner = x * coefficients[used - 1];
  at::Tensor next = at::empty_like(inner);
  for (std::size_t k = used - 1; k-- > 0;) {
    horner_step(view, static_cast<Real>(coefficients[k]), input, inner.const_data_ptr<Real>(), columns,
                next.data_ptr<Real>());
    std::swap(inner, next);
  }
  return inner;
}

}  // namespace

at::Tensor dense_power_series(const Graph& graph, const std::vector<double>& coefficients) {
  check(graph.num_nodes() <= kMaxDenseNodes,
        "dense_power_series: a dense mask is limited to {} nodes, the graph has {} (apply_power_series has "
        "no limit)",
        kMaxDenseNodes, graph.num_nodes());
  const std::int64_t n = graph.num_nodes();
  at::Tensor sum = at::zeros({n, n}, at::kDouble);
  const std::size_t used = used_terms(coefficients);
  if (n == 0 || used == 0) return sum;
  sum.diagonal().fill_(coefficients[used - 1]);
  if (used == 1) return sum;
  const at::Tensor weight = graph.to_dense();
  for (std::size_t k = used - 1; k-- > 0;) {
    // Everything in the sum is a polynomial in W, so the side on which W multiplies does not matter.
    sum = weight.matmul(sum);
    sum.diagonal().add_(coefficients[k]);
  }
  return sum;
}

at::Tensor apply_power_series(const Graph& graph, const std::vector<double>& coefficients,
                              const at::Tensor& x) {
  check(x.defined() && (x.dim() == 1 || x.dim() == 2) && x.size(0) == graph.num_nodes(),
        "apply_power_series: x must have shape [{0}] or [{0}, D] to match the graph, got {1} dimensions and "
        "{2} rows",
        graph.num_nodes(), x.defined() ? x.dim() : 0, x.defined() && x.dim() > 0 ? x.size(0) : 0);
  check(x.is_cpu(), "apply_power_series: x must be on the CPU");
  check(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
        "apply_power_series: x must be float32 or float64, got {}", c10::toString(x.scalar_type()));
  const at::Tensor input = x.detach().contiguous();
  return x.scalar_type() == at::kFloat ? apply_typed<float>(graph, coefficients, input)
                                       : apply_typed<double>(graph, coefficients, input);
}

}  // namespace topomask
