// Node kernels: topological masks M_alpha(G) = sum_k alpha_k W^k (Sec. 3.1, Eq. 4) with known coefficients.
//
// Every kernel is a power series prefactor * sum_k a_k (scale * W)^k. The functions below return plain series
// in W that include scale and prefactor, so Phi Phi^T estimates the kernel itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "topomask/graph.h"

namespace topomask {

// Dense [N, N] results are for small graphs; every function that makes one refuses more nodes than this.
inline constexpr std::int64_t kMaxDenseNodes = 4096;

// f with f * f = alpha (discrete convolution), Remark 3.1: f_0 = sqrt(alpha_0),
// f_k = (alpha_k - sum_{p=1}^{k-1} f_p f_{k-p}) / (2 f_0). Needs alpha_0 > 0.
std::vector<double> deconvolve(const std::vector<double>& coefficients);
// f * g, all len(f) + len(g) - 1 terms.
std::vector<double> convolve(const std::vector<double>& f, const std::vector<double>& g);

enum class KernelKind {
  regularised_laplacian,  // (I + sigma2 L)^-d
  p_step,                 // (aI - L)^p, a >= 2
  diffusion,              // exp(-sigma2 L / 2)
  inverse_cosine,         // cos(pi L / 4)
  matern,                 // (2 nu / kappa^2 + L)^-nu
  coefficients,           // alpha given, zero beyond
  modulation,             // f given, zero beyond
};

struct NodeKernel {
  KernelKind kind = KernelKind::regularised_laplacian;
  double d = 2, sigma2 = 0.25;  // regularised_laplacian; sigma2 also diffusion
  double p = 2, a = 2;          // p_step
  double nu = 1.5, kappa = 1;   // matern
  std::vector<double> series;   // coefficients, modulation

  // A name of kernel_forms(), with parameters that differ from their defaults: "matern",
  // "diffusion:sigma2=1", "coefficients:1,0.5,0.25". An unknown name suggests the nearest.
  static NodeKernel parse(const std::string& spec);
  std::string to_string() const;

  std::vector<double> coefficients_up_to(int max_power) const;  // alpha_0 .. alpha_max_power
  std::vector<double> modulation_up_to(int max_hops) const;     // f_0 .. f_max_hops
  // Radius of convergence of sum_k f_k z^k (infinite for polynomials and diffusion). It can be smaller than
  // that of alpha: f is the square root of alpha's function and is singular at its zeros.
  double modulation_radius() const;
  // Throws unless every parameter is in its range; the member functions above call it first.
  void check_parameters() const;
};

// What NodeKernel::parse understands; a plain NodeKernel is the first one.
struct KernelForm {
  struct Parameter {
    std::string name;
    double default_value;
  };
  std::string name;         // "matern"
  std::string form;         // with its defaults: "matern:nu=1.5,kappa=1"; "coefficients:A0,A1,..."
  std::string description;  // a formula in the Laplacian L = I - W, or in W
  std::vector<Parameter> parameters;
};
const std::vector<KernelForm>& kernel_forms();
std::string kernel_forms_text();  // a line each, for --help and docstrings

// The exact mask of a truncated series: sum_k coefficients[k] W^k, dense, [N, N] float64.
// N <= kMaxDenseNodes.
at::Tensor dense_power_series(const Graph& graph, const std::vector<double>& coefficients);
// The same times X by Horner's rule, O(K E D), never forming W^k. x: [N] or [N, D], float32 or float64.
at::Tensor apply_power_series(const Graph& graph, const std::vector<double>& coefficients,
                              const at::Tensor& x);
// The untruncated kernel, [N, N] float64: through the spectrum of a symmetric W, else by dense linear
// algebra. Throws where the kernel's series in W does not converge.
at::Tensor exact_kernel(const Graph& graph, const NodeKernel& kernel);

struct DefinitenessReport {
  bool positive_definite = false;
  double smallest = 0;  // smallest value of sum_k alpha_k lambda^k over the eigenvalues lambda of W
};
// Sec. 3.1: positive definite iff sum_k alpha_k lambda_i^k > 0 for every eigenvalue. Symmetric W only.
DefinitenessReport check_positive_definite(const Graph& graph, const NodeKernel& kernel);

}  // namespace topomask
