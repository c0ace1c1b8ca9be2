// The untruncated node kernels as functions of the matrix W, for small graphs.
#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_eig.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_eigvals.h>
#include <ATen/ops/linalg_eigvalsh.h>
#include <ATen/ops/linalg_inv.h>
#include <ATen/ops/linalg_inv_ex.h>
#include <ATen/ops/linalg_matrix_power.h>
#include <ATen/ops/matrix_exp.h>
#include <ATen/ops/real.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "kernels/closed_form.h"
#include "topomask/kernels.h"

namespace topomask {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();
constexpr int kMaxTerms = 20000;
// Eigenvalues of a normalised graph reach +-1 up to rounding, where some kernels stop converging.
constexpr double kBoundaryTolerance = 1e-9;

bool is_integer(double value) {
  return std::floor(value) == value && value < 0x1p31;
}

// The exponent e of kernels of the form (constant + multiple of W)^e; 0 for the others.
double exponent_of(const NodeKernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::regularised_laplacian:
      return -kernel.d;
    case KernelKind::matern:
      return -kernel.nu;
    case KernelKind::p_step:
      return kernel.p;
    default:
      return 0;
  }
}

template <class Number>
Number polynomial(const std::vector<double>& coefficients, Number z) {
  Number sum = 0;
  for (std::size_t k = coefficients.size(); k-- > 0;) sum = sum * z + coefficients[k];
  return sum;
}

// sum_k alpha_k lambda^k in closed form, at an eigenvalue lambda of W (that of L is 1 - lambda).
template <class Number>
Number kernel_value(const NodeKernel& kernel, Number lambda) {
  const auto [prefactor, scale] = series_form(kernel);
  switch (kernel.kind) {
    case KernelKind::regularised_laplacian:
    case KernelKind::matern:
      return prefactor * std::pow(1.0 - scale * lambda, exponent_of(kernel));
    case KernelKind::p_step:
      return std::pow(kernel.a - 1 + lambda, kernel.p);
    case KernelKind::diffusion:
      return std::exp(-kernel.sigma2 / 2 * (1.0 - lambda));
    case KernelKind::inverse_cosine:
      return std::cos(std::numbers::pi / 4 * (1.0 - lambda));
    case KernelKind::coefficients:
      return polynomial(kernel.series, lambda);
    case KernelKind::modulation: {
      const Number root = polynomial(kernel.series, lambda);
      return root * root;
    }
  }
  fail("NodeKernel: kind {} is not a KernelKind", static_cast<int>(kernel.kind));
}

// The series of alpha (not of f) must converge on the spectrum. (1 - z)^-d diverges on its circle of
// convergence; (1 + z)^p with p > 0 still converges there.
void check_converges(const NodeKernel& kernel, double spectral_radius) {
  double radius = kUnbounded;
  bool closed = false;
  switch (kernel.kind) {
    case KernelKind::regularised_laplacian:
    case KernelKind::matern:
      radius = 1 / series_form(kernel).scale;
      break;
    case KernelKind::p_step:
      if (!is_integer(kernel.p)) radius = kernel.a - 1;
      closed = true;
      break;
    default:
      break;
  }
  const double slack = closed ? kBoundaryTolerance : -kBoundaryTolerance;
  check(radius == kUnbounded || spectral_radius <= radius * (1 + slack),
        "exact_kernel: the series of {} converges for spectral radius below {}, W has {}; normalise the "
        "graph first",
        kernel.to_string(), radius, spectral_radius);
}

void check_size(const char* function, const Graph& graph) {
  check(graph.num_nodes() <= kMaxDenseNodes, "{}: a dense kernel is limited to {} nodes, the graph has {}",
        function, kMaxDenseNodes, graph.num_nodes());
}

std::vector<double> values_at(const NodeKernel& kernel, const at::Tensor& eigenvalues) {
  const double* lambda = eigenvalues.const_data_ptr<double>();
  const std::int64_t count = eigenvalues.numel();
  double radius = 0;
  for (std::int64_t i = 0; i < count; ++i) radius = std::max(radius, std::abs(lambda[i]));
  check_converges(kernel, radius);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) {
    double z = lambda[i];
    // On the boundary a - 1 + lambda may round to just below zero, where a broken power is not real.
    if (kernel.kind == KernelKind::p_step && !is_integer(kernel.p)) z = std::max(z, 1 - kernel.a);
    values.push_back(kernel_value(kernel, z));
  }
  return values;
}

at::Tensor symmetric_kernel(const at::Tensor& weight, const NodeKernel& kernel) {
  const auto [eigenvalues, vectors] = at::linalg_eigh(weight);
  std::vector<double> values = values_at(kernel, eigenvalues.contiguous());
  const at::Tensor scaling = at::from_blob(values.data(), {weight.size(0)}, at::kDouble);
  return (vectors * scaling).matmul(vectors.t());
}

// Through a complex eigenbasis; undefined if W has none that is well conditioned.
at::Tensor diagonalised_kernel(const at::Tensor& weight, const NodeKernel& kernel) {
  const auto [eigenvalues, vectors] = at::linalg_eig(weight);
  const auto [inverse, info] = at::linalg_inv_ex(vectors);
  if (info.item<int>() != 0) return {};
  const at::Tensor rebuilt = (vectors * eigenvalues).matmul(inverse);
  const double residual = (rebuilt - weight).abs().max().item<double>();
  if (!(residual <= 1e-10 * weight.abs().max().item<double>())) return {};
  at::Tensor values = eigenvalues.contiguous().clone();
  auto* value = reinterpret_cast<std::complex<double>*>(values.data_ptr<c10::complex<double>>());
  for (std::int64_t i = 0; i < values.numel(); ++i) value[i] = kernel_value(kernel, value[i]);
  return at::real((vectors * values).matmul(inverse)).contiguous();
}

// (1 + z)^e term by term, for matrices z without an eigenbasis and broken exponents.
at::Tensor binomial_kernel(const at::Tensor& z, double exponent, const NodeKernel& kernel) {
  at::Tensor term = at::eye(z.size(0), at::kDouble);
  at::Tensor sum = term.clone();
  int negligible = 0;
  for (int k = 0; k < kMaxTerms; ++k) {
    term = term.matmul(z).mul_((exponent - k) / (k + 1));
    sum += term;
    // Powers of a defective matrix may grow before they decay, so one small term does not prove the end.
    const bool small = term.abs().max().item<double>() <= 1e-17 * sum.abs().max().item<double>();
    negligible = small ? negligible + 1 : 0;
    if (negligible == 8) return sum;
  }
  fail("exact_kernel: the series of {} has not converged after {} terms for this W", kernel.to_string(),
       kMaxTerms);
}

at::Tensor general_kernel(const Graph& graph, const at::Tensor& weight, const NodeKernel& kernel) {
  const at::Tensor identity = at::eye(weight.size(0), at::kDouble);
  const auto [prefactor, scale] = series_form(kernel);
  switch (kernel.kind) {
    case KernelKind::coefficients:
      return dense_power_series(graph, kernel.series);
    case KernelKind::modulation: {
      const at::Tensor root = dense_power_series(graph, kernel.series);
      return root.matmul(root);
    }
    case KernelKind::diffusion:
      return at::matrix_exp((weight - identity) * (kernel.sigma2 / 2));
    case KernelKind::inverse_cosine: {
      // cos A is the real part of exp(iA) for a real matrix A.
      const c10::complex<double> quarter_turn(0, std::numbers::pi / 4);
      return at::real(at::matrix_exp((identity - weight).to(at::kComplexDouble) * quarter_turn)).contiguous();
    }
    default:
      break;
  }
  check_converges(kernel, at::linalg_eigvals(weight).abs().max().item<double>());
  const double exponent = exponent_of(kernel);
  const at::Tensor base = exponent < 0 ? identity - scale * weight : identity + scale * weight;
  if (is_integer(std::abs(exponent))) {
    return prefactor * at::linalg_matrix_power(exponent < 0 ? at::linalg_inv(base) : base,
                                               static_cast<std::int64_t>(std::abs(exponent)));
  }
  const at::Tensor diagonalised = diagonalised_kernel(weight, kernel);
  return diagonalised.defined() ? diagonalised
                                : prefactor * binomial_kernel(base - identity, exponent, kernel);
}

}  // namespace

at::Tensor exact_kernel(const Graph& graph, const NodeKernel& kernel) {
  kernel.check_parameters();
  check_size("exact_kernel", graph);
  if (graph.num_nodes() == 0) return at::zeros({0, 0}, at::kDouble);
  const at::Tensor weight = graph.to_dense();
  at::Tensor mask =
      graph.is_symmetric() ? symmetric_kernel(weight, kernel) : general_kernel(graph, weight, kernel);
  check(at::isfinite(mask).all().item<bool>(), "exact_kernel: {} overflows double precision for this W",
        kernel.to_string());
  return mask;
}

DefinitenessReport check_positive_definite(const Graph& graph, const NodeKernel& kernel) {
  kernel.check_parameters();
  check_size("check_positive_definite", graph);
  check(graph.is_symmetric(),
        "check_positive_definite: W must be symmetric, got a graph whose W differs from its "
        "transpose (normalise it symmetrically)");
  if (graph.num_nodes() == 0) return {true, 0};
  const std::vector<double> values = values_at(kernel, at::linalg_eigvalsh(graph.to_dense()).contiguous());
  const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
  // A zero of the kernel function comes out of the eigenvalue solver as a tiny number of either sign.
  return {*smallest > 1e-12 * std::max(*largest, -*smallest), *smallest};
}

}  // namespace topomask
