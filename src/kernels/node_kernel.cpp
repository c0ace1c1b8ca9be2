// The power series of the node kernels (design table "node kernels"; App. A) and of their square roots.
#include <ATen/ops/linalg_eigvals.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "kernels/closed_form.h"
#include "topomask/kernels.h"

namespace topomask {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// first * ratio(0) * ratio(1) ...: recurrences stay finite where factorials and powers would not.
template <class Ratio>
std::vector<double> recurrence(double first, int last, Ratio ratio) {
  std::vector<double> terms(static_cast<std::size_t>(last) + 1, first);
  for (int k = 0; k < last; ++k) terms[k + 1] = terms[k] * ratio(static_cast<double>(k));
  return terms;
}

// (b)_k / k! * scale^k, the series of (1 - scale z)^-b.
std::vector<double> rising_series(double first, double b, double scale, int last) {
  return recurrence(first, last, [=](double k) { return scale * (b + k) / (k + 1); });
}

// C(s, k) * scale^k, the series of (1 + scale z)^s.
std::vector<double> binomial_series(double first, double s, double scale, int last) {
  return recurrence(first, last, [=](double k) { return scale * (s - k) / (k + 1); });
}

void check_has_root(double first) {
  check(first > 0 && std::isfinite(first),
        "deconvolve: f_0 is the square root of coefficient 0, which must be positive and finite, got {} "
        "(asymmetric "
        "ensembles need no deconvolution)",
        first);
}

std::vector<double> padded(std::vector<double> values, int last) {
  values.resize(static_cast<std::size_t>(last) + 1, 0.0);
  return values;
}

std::vector<double> without_trailing_zeros(std::vector<double> values) {
  while (values.size() > 1 && values.back() == 0.0) values.pop_back();
  return values;
}

// A polynomial that is the square of another one has a square root without singularities, whatever its roots.
bool is_perfect_square(const std::vector<double>& polynomial) {
  const std::size_t degree = polynomial.size() - 1;
  if (degree % 2 == 1) return false;
  const std::vector<double> root = deconvolve(polynomial);
  // If f_k = 0 for degree/2 < k <= degree then f * f ends at `degree`, and equals the polynomial up to there.
  double largest = 0;
  for (const double f : root) largest = std::max(largest, std::abs(f));
  return std::all_of(root.begin() + static_cast<std::ptrdiff_t>(degree / 2) + 1, root.end(),
                     [&](double f) { return std::abs(f) <= 1e-12 * largest; });
}

double smallest_root_modulus(const std::vector<double>& polynomial) {
  const std::int64_t degree = static_cast<std::int64_t>(polynomial.size()) - 1;
  // The companion matrix of the reversed polynomial has the inverse roots as eigenvalues; alpha_0 > 0
  // divides.
  at::Tensor companion = at::zeros({degree, degree}, at::kDouble);
  double* entry = companion.data_ptr<double>();
  for (std::int64_t k = 0; k < degree; ++k) {
    entry[k] = -polynomial[k + 1] / polynomial[0];
    if (k + 1 < degree) entry[(k + 1) * degree + k] = 1;
  }
  return 1.0 / at::linalg_eigvals(companion).abs().max().item<double>();
}

}  // namespace

std::vector<double> deconvolve(const std::vector<double>& coefficients) {
  if (coefficients.empty()) return {};
  check_has_root(coefficients[0]);
  std::vector<double> f(coefficients.size());
  f[0] = std::sqrt(coefficients[0]);
  for (std::size_t k = 1; k < f.size(); ++k) {
    // Each product f_p f_{k-p} appears twice: half of the sum, plus the square in the middle.
    double half = 0;
    for (std::size_t p = 1; 2 * p < k; ++p) half += f[p] * f[k - p];
    const double middle = k % 2 == 0 ? f[k / 2] * f[k / 2] : 0.0;
    f[k] = (coefficients[k] - 2 * half - middle) / (2 * f[0]);
  }
  return f;
}

std::vector<double> convolve(const std::vector<double>& f, const std::vector<double>& g) {
  if (f.empty() || g.empty()) return {};
  std::vector<double> product(f.size() + g.size() - 1, 0.0);
  for (std::size_t i = 0; i < f.size(); ++i) {
    for (std::size_t j = 0; j < g.size(); ++j) product[i + j] += f[i] * g[j];
  }
  return product;
}

void NodeKernel::check_parameters() const {
  const auto check_positive = [](double value, const char* kernel, const char* name) {
    check(value > 0 && std::isfinite(value), "kernel {}: {} must be positive and finite, got {}", kernel,
          name, value);
  };
  switch (kind) {
    case KernelKind::regularised_laplacian:
      check_positive(d, "reg-laplacian", "d");
      check_positive(sigma2, "reg-laplacian", "sigma2");
      break;
    case KernelKind::p_step:
      check_positive(p, "p-step", "p");
      check(a >= 2 && std::isfinite(a), "kernel p-step: a must be finite and at least 2, got {}", a);
      break;
    case KernelKind::diffusion:
      check_positive(sigma2, "diffusion", "sigma2");
      break;
    case KernelKind::inverse_cosine:
      return;
    case KernelKind::matern:
      check_positive(nu, "matern", "nu");
      check_positive(kappa, "matern", "kappa");
      break;
    case KernelKind::coefficients:
    case KernelKind::modulation:
      check(!series.empty(), "kernel {}: expected at least one number, got none",
            kind == KernelKind::coefficients ? "coefficients" : "modulation");
      for (const double value : series) {
        check(std::isfinite(value), "kernel series: expected finite numbers, got {}", value);
      }
      return;
  }
  const SeriesForm form = series_form(*this);
  check(
      form.prefactor >= std::numeric_limits<double>::min() && std::isfinite(form.prefactor) && form.scale > 0,
      "kernel {}: the factor in front of its series is {}, outside the range of double precision",
      to_string(), form.prefactor);
}

SeriesForm series_form(const NodeKernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::regularised_laplacian:
      return {std::pow(1 + kernel.sigma2, -kernel.d), kernel.sigma2 / (1 + kernel.sigma2)};
    case KernelKind::p_step:
      return {std::pow(kernel.a - 1, kernel.p), 1 / (kernel.a - 1)};
    case KernelKind::diffusion:
      return {std::exp(-kernel.sigma2 / 2), kernel.sigma2 / 2};
    case KernelKind::inverse_cosine:
      return {std::numbers::sqrt2 / 2, std::numbers::pi / 4};
    case KernelKind::matern: {
      const double c = 1 + 2 * kernel.nu / (kernel.kappa * kernel.kappa);
      return {std::pow(c, -kernel.nu), 1 / c};
    }
    case KernelKind::coefficients:
    case KernelKind::modulation:
      break;
  }
  return {1, 1};
}

std::vector<double> NodeKernel::coefficients_up_to(int max_power) const {
  check_parameters();
  check(max_power >= 0, "coefficients_up_to: max_power must not be negative, got {}", max_power);
  const auto [prefactor, scale] = series_form(*this);
  switch (kind) {
    case KernelKind::regularised_laplacian:
      return rising_series(prefactor, d, scale, max_power);
    case KernelKind::p_step:
      return binomial_series(prefactor, p, scale, max_power);
    case KernelKind::diffusion:
      return recurrence(prefactor, max_power, [scale = scale](double k) { return scale / (k + 1); });
    case KernelKind::inverse_cosine: {
      // cos(pi/4 - z) = (cos z + sin z) / sqrt 2: the signs run + + - -.
      std::vector<double> alpha =
          recurrence(prefactor, max_power, [scale = scale](double k) { return scale / (k + 1); });
      for (std::size_t k = 0; k < alpha.size(); ++k) {
        if (k / 2 % 2 == 1) alpha[k] = -alpha[k];
      }
      return alpha;
    }
    case KernelKind::matern:
      return rising_series(prefactor, nu, scale, max_power);
    case KernelKind::coefficients:
      return padded(series, max_power);
    case KernelKind::modulation: {
      const std::size_t needed = static_cast<std::size_t>(max_power) + 1;
      const std::vector<double> f(
          series.begin(), series.begin() + static_cast<std::ptrdiff_t>(std::min(series.size(), needed)));
      return padded(convolve(f, f), max_power);
    }
  }
  fail("NodeKernel: kind {} is not a KernelKind", static_cast<int>(kind));
}

std::vector<double> NodeKernel::modulation_up_to(int max_hops) const {
  check_parameters();
  check(max_hops >= 0, "modulation_up_to: max_hops must not be negative, got {}", max_hops);
  const auto [prefactor, scale] = series_form(*this);
  const double first = std::sqrt(prefactor);
  switch (kind) {
    case KernelKind::regularised_laplacian:
      return rising_series(first, d / 2, scale, max_hops);
    case KernelKind::p_step:
      return binomial_series(first, p / 2, scale, max_hops);
    case KernelKind::diffusion:
      return recurrence(first, max_hops, [scale = scale](double k) { return scale / (2 * (k + 1)); });
    case KernelKind::matern:
      return rising_series(first, nu / 2, scale, max_hops);
    case KernelKind::modulation:
      return padded(series, max_hops);
    case KernelKind::inverse_cosine:
    case KernelKind::coefficients:
      break;
  }
  return deconvolve(coefficients_up_to(max_hops));
}

double NodeKernel::modulation_radius() const {
  check_parameters();
  const double scale = series_form(*this).scale;
  switch (kind) {
    case KernelKind::regularised_laplacian:
    case KernelKind::matern:
      return 1 / scale;
    case KernelKind::p_step:
      return std::floor(p / 2) == p / 2 ? kInfinity : 1 / scale;
    case KernelKind::inverse_cosine:
      return 1;  // cos(pi L / 4) has its nearest zero at W = -1
    case KernelKind::coefficients: {
      const std::vector<double> polynomial = without_trailing_zeros(series);
      if (polynomial.size() == 1) return kInfinity;
      check_has_root(polynomial[0]);
      return is_perfect_square(polynomial) ? kInfinity : smallest_root_modulus(polynomial);
    }
    case KernelKind::diffusion:
    case KernelKind::modulation:
      break;
  }
  return kInfinity;
}

}  // namespace topomask
