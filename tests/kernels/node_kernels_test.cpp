#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <numbers>

#include "topomask/error.h"
#include "topomask/kernels.h"

namespace topomask {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

double evaluate(const std::vector<double>& series, double z) {
  double sum = 0;
  for (std::size_t k = series.size(); k-- > 0;) sum = sum * z + series[k];
  return sum;
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

struct NamedKernel {
  const char* spec;
  std::function<double(double)> of_lambda;  // the kernel as a function of an eigenvalue of W
};

class TableKernel : public ::testing::TestWithParam<NamedKernel> {};

TEST_P(TableKernel, SeriesSumsToItsClosedForm) {
  const NodeKernel kernel = NodeKernel::parse(GetParam().spec);
  const std::vector<double> alpha = kernel.coefficients_up_to(400);
  for (const double lambda : {-0.7, -0.2, 0.0, 0.5, 0.75}) {
    const double expected = GetParam().of_lambda(lambda);
    EXPECT_NEAR(evaluate(alpha, lambda), expected, 1e-12 * (1 + std::abs(expected))) << lambda;
  }
}

TEST_P(TableKernel, ModulationConvolvesToCoefficients) {
  const NodeKernel kernel = NodeKernel::parse(GetParam().spec);
  const std::vector<double> alpha = kernel.coefficients_up_to(60), f = kernel.modulation_up_to(60);
  const std::vector<double> squared = convolve(f, f);
  for (int k = 0; k <= 60; ++k) EXPECT_NEAR(squared[k], alpha[k], 1e-12 * largest(alpha)) << k;
}

TEST_P(TableKernel, ClosedFormModulationIsTheDeconvolution) {
  const NodeKernel kernel = NodeKernel::parse(GetParam().spec);
  const std::vector<double> f = kernel.modulation_up_to(30),
                            recursive = deconvolve(kernel.coefficients_up_to(30));
  // The recursion amplifies rounding where alpha first grows by orders of magnitude (diffusion with a large
  // sigma2).
  const double tolerance = (largest(f) > 10 * f[0] ? 1e-10 : 1e-12) * largest(f);
  for (int k = 0; k <= 30; ++k) EXPECT_NEAR(f[k], recursive[k], tolerance) << k;
}

TEST_P(TableKernel, SpecRoundTrips) {
  const NodeKernel kernel = NodeKernel::parse(GetParam().spec);
  const NodeKernel again = NodeKernel::parse(kernel.to_string());
  EXPECT_EQ(again.to_string(), kernel.to_string());
  EXPECT_EQ(again.coefficients_up_to(20), kernel.coefficients_up_to(20));
}

INSTANTIATE_TEST_SUITE_P(
    All, TableKernel,
    ::testing::Values(
        NamedKernel{"reg-laplacian:d=2,sigma2=0.25",
                    [](double l) { return std::pow(1 + 0.25 * (1 - l), -2); }},
        NamedKernel{"reg-laplacian:d=0.7,sigma2=1.3",
                    [](double l) { return std::pow(1 + 1.3 * (1 - l), -0.7); }},
        NamedKernel{"diffusion:sigma2=1", [](double l) { return std::exp(-0.5 * (1 - l)); }},
        NamedKernel{"diffusion:sigma2=30", [](double l) { return std::exp(-15 * (1 - l)); }},
        NamedKernel{"p-step:p=2,a=2", [](double l) { return std::pow(1 + l, 2); }},
        NamedKernel{"p-step:p=3,a=2.5", [](double l) { return std::pow(1.5 + l, 3); }},
        NamedKernel{"p-step:p=0.3,a=2", [](double l) { return std::pow(1 + l, 0.3); }},
        NamedKernel{"inverse-cosine", [](double l) { return std::cos(std::numbers::pi / 4 * (1 - l)); }},
        NamedKernel{"matern:nu=1.5,kappa=1", [](double l) { return std::pow(3 + 1 - l, -1.5); }},
        NamedKernel{"matern:nu=0.5,kappa=2.5", [](double l) { return std::pow(0.16 + 1 - l, -0.5); }},
        NamedKernel{"coefficients:1,0.5,0.25", [](double l) { return 1 + 0.5 * l + 0.25 * l * l; }},
        NamedKernel{"modulation:1,-0.5", [](double l) { return (1 - 0.5 * l) * (1 - 0.5 * l); }}),
    [](const auto& test) {
      std::string name = std::string(test.param.spec) + "_" + std::to_string(test.index);
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

TEST(Deconvolution, KnownCases) {
  // (1 + z)^2 has the root 1 + z; 4 + 4z + ... keeps the scale.
  EXPECT_THAT(deconvolve({1, 2, 1, 0, 0}), testing::ElementsAre(1, 1, 0, 0, 0));
  EXPECT_THAT(deconvolve({4, 4, 1}), testing::ElementsAre(2, 1, 0));
  EXPECT_TRUE(deconvolve({}).empty());
  EXPECT_THAT(convolve({1, 2}, {3, 4, 5}), testing::ElementsAre(3, 10, 13, 10));
  EXPECT_TRUE(convolve({}, {1}).empty());
}

TEST(Deconvolution, InverseCosineGrowsLikeItsRecursionSays) {
  const std::vector<double> f = NodeKernel::parse("inverse-cosine").modulation_up_to(200);
  const double scale = std::numbers::pi / 4, first = std::pow(2, -0.25);
  // By hand from alpha = 1, 1, -1/2, -1/6: f = 1, 1/2, -3/8, 5/48 times scale^k.
  EXPECT_NEAR(f[0], first, 1e-15);
  EXPECT_NEAR(f[1], first * scale / 2, 1e-15);
  EXPECT_NEAR(f[2], -first * scale * scale * 3 / 8, 1e-15);
  EXPECT_NEAR(f[3], first * scale * scale * scale * 5 / 48, 1e-15);
  // In units of the series variable the ratio tends to 4 / pi; here it has been multiplied in.
  EXPECT_NEAR(std::abs(f[200] / f[199]), 1, 0.01);
}

TEST(Deconvolution, NeedsAPositiveFirstCoefficient) {
  EXPECT_THAT(error_of([] { deconvolve({0, 1}); }), HasSubstr("must be positive"));
  EXPECT_THAT(error_of([] { deconvolve({-1.5, 1}); }), HasSubstr("-1.5"));
  EXPECT_THAT(error_of([] { NodeKernel::parse("coefficients:0,1").modulation_up_to(3); }),
              HasSubstr("deconvolve"));
  EXPECT_EQ(NodeKernel::parse("coefficients:0,1").coefficients_up_to(2), (std::vector<double>{0, 1, 0}));
}

TEST(Coefficients, LargeOrdersStayFinite) {
  for (const char* spec :
       {"diffusion:sigma2=100", "matern:nu=20,kappa=0.5", "p-step:p=41.5,a=3", "inverse-cosine"}) {
    for (const double f : NodeKernel::parse(spec).modulation_up_to(3000))
      ASSERT_TRUE(std::isfinite(f)) << spec;
  }
}

TEST(ModulationRadius, OfEveryKind) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto radius = [](const char* spec) { return NodeKernel::parse(spec).modulation_radius(); };
  EXPECT_DOUBLE_EQ(radius("reg-laplacian:d=2,sigma2=0.25"), 5);
  EXPECT_DOUBLE_EQ(radius("matern:nu=1.5,kappa=1"), 4);
  EXPECT_EQ(radius("p-step:p=4,a=3"), infinity);
  EXPECT_DOUBLE_EQ(radius("p-step:p=3,a=3"), 2);
  EXPECT_EQ(radius("diffusion"), infinity);
  EXPECT_EQ(radius("inverse-cosine"), 1);
  EXPECT_EQ(radius("modulation:1,2,3"), infinity);
  EXPECT_EQ(radius("coefficients:2,0,0"), infinity);
  EXPECT_EQ(radius("coefficients:1,2,1"), infinity);  // a perfect square: f = 1 + z
  EXPECT_NEAR(radius("coefficients:1,0.5"), 2, 1e-12);
  EXPECT_NEAR(radius("coefficients:6,-5,1"), 2, 1e-12);   // (z - 2)(z - 3)
  EXPECT_NEAR(radius("coefficients:4,0,1,0"), 2, 1e-12);  // roots +-2i
  EXPECT_THAT(error_of([&] { radius("coefficients:0,1"); }), HasSubstr("must be positive"));
}

TEST(KernelSpec, DefaultsAndOrder) {
  const NodeKernel kernel = NodeKernel::parse("reg-laplacian:sigma2=3");
  EXPECT_EQ(kernel.sigma2, 3);
  EXPECT_EQ(kernel.d, 2);
  EXPECT_EQ(NodeKernel::parse("p-step:a=4,p=1").to_string(), "p-step:p=1,a=4");
  EXPECT_EQ(NodeKernel::parse("coefficients:1,-0.1,1e-3").series, (std::vector<double>{1, -0.1, 1e-3}));
}

// --help, messages and docstrings come from one table; the page on mathematics explains it.
TEST(KernelSpec, FormsAreListedOnce) {
  std::ifstream file(TOPOMASK_DOCS "mathematics.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}}, text = kernel_forms_text();
  const std::string unknown = error_of([] { NodeKernel::parse("nonsense"); });
  for (const KernelForm& form : kernel_forms()) {
    SCOPED_TRACE(form.name);
    EXPECT_THAT(text, HasSubstr("  " + form.form + " "));
    EXPECT_THAT(text, HasSubstr(form.description));
    EXPECT_THAT(unknown, HasSubstr(form.name));
    const bool series = form.name == "coefficients" || form.name == "modulation";
    if (series) continue;
    EXPECT_THAT(page, HasSubstr("| `" + form.name));
    EXPECT_EQ(NodeKernel::parse(form.name).to_string(), form.form) << "the defaults are those of the form";
    EXPECT_EQ(NodeKernel::parse(form.form).to_string(), form.form);
  }
  EXPECT_EQ(NodeKernel().to_string(), kernel_forms().front().form);
  EXPECT_EQ(kernel_forms().front().form, "reg-laplacian:d=2,sigma2=0.25");
  ASSERT_EQ(kernel_forms().front().parameters.size(), 2u);
  EXPECT_EQ(kernel_forms().front().parameters[1].name, "sigma2");
  EXPECT_EQ(kernel_forms().front().parameters[1].default_value, 0.25);
}

TEST(KernelSpec, MistakesAreOneSentence) {
  const auto message = [](const char* spec) { return error_of([spec] { NodeKernel::parse(spec); }); };
  EXPECT_THAT(message("difusion"), HasSubstr("did you mean 'diffusion'"));
  EXPECT_THAT(message(""), HasSubstr("unknown kernel ''"));
  EXPECT_THAT(message("diffusion:sigma=1"), HasSubstr("did you mean 'sigma2'"));
  EXPECT_THAT(message("diffusion:d=1"), HasSubstr("no parameter 'd'"));
  EXPECT_THAT(message("inverse-cosine:x=1"), HasSubstr("expected none"));
  EXPECT_THAT(message("diffusion:"), HasSubstr("expected name=value"));
  EXPECT_THAT(message("diffusion:sigma2"), HasSubstr("expected name=value"));
  EXPECT_THAT(message("diffusion:sigma2="), HasSubstr("finite number, got ''"));
  EXPECT_THAT(message("diffusion:sigma2=1x"), HasSubstr("got '1x'"));
  EXPECT_THAT(message("diffusion:sigma2=nan"), HasSubstr("got 'nan'"));
  EXPECT_THAT(message("diffusion:sigma2=1e999"), HasSubstr("got '1e999'"));
  EXPECT_THAT(message("diffusion:sigma2=1,sigma2=2"), HasSubstr("given twice"));
  EXPECT_THAT(message("diffusion:sigma2=0"), HasSubstr("sigma2 must be positive"));
  EXPECT_THAT(message("diffusion:sigma2=1e5"), HasSubstr("double precision"));
  EXPECT_THAT(message("reg-laplacian:d=-1"), HasSubstr("d must be positive"));
  EXPECT_THAT(message("p-step:a=1.5"), HasSubstr("a must be finite and at least 2, got 1.5"));
  EXPECT_THAT(message("p-step:p=0"), HasSubstr("p must be positive"));
  EXPECT_THAT(message("matern:nu=0"), HasSubstr("nu must be positive"));
  EXPECT_THAT(message("matern:kappa=-2"), HasSubstr("kappa must be positive"));
  EXPECT_THAT(message("coefficients"), HasSubstr("expected numbers"));
  EXPECT_THAT(message("coefficients:"), HasSubstr("expected numbers"));
  EXPECT_THAT(message("modulation:1,,2"), HasSubstr("finite number, got ''"));
  EXPECT_THAT(error_of([] { NodeKernel().modulation_up_to(-1); }), HasSubstr("must not be negative"));
}

}  // namespace
}  // namespace topomask
