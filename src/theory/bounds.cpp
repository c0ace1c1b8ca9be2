// What Thm. 3.1 and Lemma 3.2 promise.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "kernels/closed_form.h"
#include "topomask/theory.h"

namespace topomask {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMostWalks = std::int64_t{1} << 62;

void check_p_halt(const char* function, double p_halt) {
  check(p_halt >= 0 && p_halt <= 1, "{}: p_halt must be in [0, 1], got {}", function, p_halt);
}

// sum_k |C(s, k)| x^k. The terms up to ceil(s) are positive; the later ones alternate, so that their absolute
// sum is what (1 - x)^s lacks from its own first terms.
double absolute_binomial(double s, double x) {
  if (std::floor(s) == s) return std::pow(1 + x, s);
  if (x > 1) return kInfinity;
  double head = 0, alternating_head = 0, term = 1;
  for (double k = 0; k < std::ceil(s); ++k) {
    head += term;
    alternating_head += std::fmod(k, 2) == 0 ? term : -term;
    term *= x * (s - k) / (k + 1);
    if (head == kInfinity) return kInfinity;
  }
  return head + std::abs(std::pow(1 - x, s) - alternating_head);
}

// sum_k |f_k| r^k of a user's polynomial alpha, at or inside the radius of convergence of its square root f.
double absolute_root_series(const NodeKernel& kernel, double r) {
  constexpr int kTerms = 4096, kLast = 64;
  const std::vector<double> f = kernel.modulation_up_to(kTerms - 1);
  double sum = 0, power = 1, largest_last = 0;
  for (int k = 0; k < kTerms; ++k, power *= r) {
    const double term = std::abs(f[k]) * power;
    if (term <= 1e-300) continue;
    sum += term;
    if (k >= kTerms - kLast) largest_last = std::max(largest_last, term);
  }
  // f is the root of a polynomial: its singularities are (z - z_i)^(1/2) at worst, and |f_k| r^k falls at
  // least as fast as k^(-3/2). The rest of the series is then at most 2 K times its last term; adding it
  // keeps c a bound.
  return sum + 2.0 * kTerms * largest_last;
}

// c of the infinite modulation, in closed form where the signs of f are known.
double infinite_constant(const NodeKernel& kernel, double r) {
  const auto [prefactor, scale] = series_form(kernel);
  const double first = std::sqrt(prefactor), x = scale * r;
  switch (kernel.kind) {
    case KernelKind::regularised_laplacian:  // f_k > 0; (1 - x)^(-d/2) diverges at x = 1
      return x < 1 ? first * std::pow(1 - x, -kernel.d / 2) : kInfinity;
    case KernelKind::matern:
      return x < 1 ? first * std::pow(1 - x, -kernel.nu / 2) : kInfinity;
    case KernelKind::p_step:
      return first * absolute_binomial(kernel.p / 2, x);
    case KernelKind::diffusion:
      return first * std::exp(x / 2);
    case KernelKind::inverse_cosine:
      // f_0 > 0 and the signs alternate from f_1 > 0 on, so sum |f_k| r^k = 2 f_0 - f(-r), where cos(pi (1 +
      // r) / 4) is written as a sine to be exact at r = 1; f_k ~ k^(-3/2), hence r = 1 still converges.
      return r <= 1 ? 2 * first - std::sqrt(std::sin(std::numbers::pi / 4 * (1 - r))) : kInfinity;
    case KernelKind::coefficients:
      return r <= kernel.modulation_radius() ? absolute_root_series(kernel, r) : kInfinity;
    case KernelKind::modulation:
      break;
  }
  fail("NodeKernel: kind {} is not a KernelKind", static_cast<int>(kernel.kind));
}

// Only a constant series survives loads that grow without bound.
double constant_or_infinite(const NodeKernel& kernel) {
  const bool constant =
      std::all_of(kernel.series.begin() + 1, kernel.series.end(), [](double a) { return a == 0; });
  return constant ? kernel.modulation_up_to(0)[0] : kInfinity;
}

double finite_constant(const std::vector<double>& modulation, double r) {
  std::size_t used = modulation.size();
  while (used > 0 && modulation[used - 1] == 0.0) --used;
  if (used == 0) return 0;
  if (used > 1 && r == kInfinity) return kInfinity;
  double c = 0;
  for (std::size_t k = used; k-- > 0;) c = (used == 1 ? 0.0 : c * r) + std::abs(modulation[k]);
  return c;
}

}  // namespace

double load_growth(const Graph& graph, double p_halt) {
  check_p_halt("load_growth", p_halt);
  const CsrView view = graph.view();
  double growth = 0;
  for (std::int64_t node = 0; node < view.num_nodes; ++node) {
    for (std::int64_t e = view.row_ptr[node]; e < view.row_ptr[node + 1]; ++e) {
      growth = std::max(
          growth, std::abs(static_cast<double>(view.weight[e])) * static_cast<double>(view.degree(node)));
    }
  }
  return growth == 0 ? 0 : growth / (1 - p_halt);
}

double concentration_constant(const Graph& graph, const std::vector<double>& modulation, double p_halt) {
  return finite_constant(modulation, load_growth(graph, p_halt));
}

double concentration_constant(const Graph& graph, const NodeKernel& kernel, double p_halt) {
  kernel.check_parameters();
  const double r = load_growth(graph, p_halt);
  if (kernel.kind == KernelKind::modulation) return finite_constant(kernel.series, r);
  if (r == 0) return kernel.modulation_up_to(0)[0];
  if (r == kInfinity)
    return kernel.kind == KernelKind::coefficients ? constant_or_infinite(kernel) : kInfinity;
  return infinite_constant(kernel, r);
}

double coefficient_constant(const Graph& graph, const NodeKernel& kernel, double p_halt) {
  kernel.check_parameters();
  const double r = load_growth(graph, p_halt);
  if (kernel.kind == KernelKind::coefficients || kernel.kind == KernelKind::modulation) {
    const int last = 2 * static_cast<int>(kernel.series.size()) - 2;  // the square of a polynomial f
    return finite_constant(kernel.coefficients_up_to(last), r);
  }
  const auto [prefactor, scale] = series_form(kernel);
  if (r == kInfinity) return kInfinity;
  const double x = scale * r;
  switch (kernel.kind) {
    case KernelKind::regularised_laplacian:
      return x < 1 ? prefactor * std::pow(1 - x, -kernel.d) : kInfinity;
    case KernelKind::matern:
      return x < 1 ? prefactor * std::pow(1 - x, -kernel.nu) : kInfinity;
    case KernelKind::p_step:
      return prefactor * absolute_binomial(kernel.p, x);
    default:  // diffusion, and inverse-cosine but for the signs: x^k / k!
      return prefactor * std::exp(x);
  }
}

double tail_bound(double t, std::int64_t num_walks, double c) {
  check(t > 0, "tail_bound: the error t must be positive, got {}", t);
  check(num_walks >= 1, "tail_bound: the number of walks must be positive, got {}", num_walks);
  check(c >= 0, "tail_bound: the constant c must not be negative, got {}", c);
  if (c == 0) return 0;
  if (c == kInfinity) return 2;
  const double n = static_cast<double>(num_walks);
  const double ratio = t / c / c;  // c^4 would overflow long before the quotient does
  return 2 * std::exp(-0.5 * ratio * ratio * n / ((2 - 1 / n) * (2 - 1 / n)));
}

std::int64_t walks_needed(double t, double delta, double c) {
  check(t > 0, "walks_needed: the error t must be positive, got {}", t);
  check(delta > 0 && delta < 1, "walks_needed: the failure probability must be in (0, 1), got {}", delta);
  check(c >= 0, "walks_needed: the constant c must not be negative, got {}", c);
  const auto enough = [&](std::int64_t n) { return tail_bound(t, n, c) <= delta; };
  // n^3 / (2n-1)^2 is 1, 8/9, 27/25, ...: increasing only from n = 2 on, so n = 1 is a case of its own.
  if (enough(1)) return 1;
  if (!enough(kMostWalks)) return -1;
  std::int64_t too_few = 1, sufficient = kMostWalks;
  while (sufficient - too_few > 1) {
    const std::int64_t middle = too_few + (sufficient - too_few) / 2;
    (enough(middle) ? sufficient : too_few) = middle;
  }
  return sufficient;
}

// Deviation from the paper. A walk of L hops visits at most V = L + 1 nodes with Pr(V <= B) = 1 - (1 -
// p_halt)^B for a whole number B, so the b that solves the lemma's equation must be rounded up; the start is
// shared by all walks. With probability at least 1 - delta there are hence at most 1 + n (ceil(b) - 1)
// nonzeros. That is below n b + 1 for every b, but not always below the paper's n b. Walks cut at max_hops
// only have fewer. The lengths are taken as independent, as the lemma does: repelling steps leave them so,
// antithetic termination does not.
double sparsity_bound(std::int64_t num_walks, double p_halt, double delta) {
  check_p_halt("sparsity_bound", p_halt);
  check(num_walks >= 1, "sparsity_bound: the number of walks must be positive, got {}", num_walks);
  check(delta > 0 && delta < 1, "sparsity_bound: the failure probability must be in (0, 1), got {}", delta);
  if (p_halt == 0) return kInfinity;
  if (p_halt == 1) return 1;
  const double n = static_cast<double>(num_walks);
  const double one_walk_longer = -std::expm1(std::log1p(-delta) / n);  // 1 - (1 - delta)^(1/n)
  return n * std::log(one_walk_longer) / std::log1p(-p_halt) + 1;
}

}  // namespace topomask
