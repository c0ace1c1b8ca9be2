// NodeKernel from and to its one-line description.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include "core/check.h"
#include "core/suggest.h"
#include "topomask/kernels.h"

namespace topomask {
namespace {

struct Parameter {
  std::string_view name;
  double NodeKernel::*value;
};

struct Form {
  std::string_view name;
  KernelKind kind;
  std::vector<Parameter> parameters;
  bool is_series = false;  // a list of numbers instead of key=value pairs
};

const std::vector<Form>& forms() {
  static const std::vector<Form> table = {
      {"reg-laplacian",
       KernelKind::regularised_laplacian,
       {{"d", &NodeKernel::d}, {"sigma2", &NodeKernel::sigma2}}},
      {"p-step", KernelKind::p_step, {{"p", &NodeKernel::p}, {"a", &NodeKernel::a}}},
      {"diffusion", KernelKind::diffusion, {{"sigma2", &NodeKernel::sigma2}}},
      {"inverse-cosine", KernelKind::inverse_cosine, {}},
      {"matern", KernelKind::matern, {{"nu", &NodeKernel::nu}, {"kappa", &NodeKernel::kappa}}},
      {"coefficients", KernelKind::coefficients, {}, true},
      {"modulation", KernelKind::modulation, {}, true},
  };
  return table;
}

template <class Named>
std::vector<std::string_view> names_of(const std::vector<Named>& items) {
  std::vector<std::string_view> names;
  for (const Named& item : items) names.push_back(item.name);
  return names;
}

double parse_number(std::string_view text, const std::string& spec) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(status == std::errc{} && end == text.data() + text.size() && std::isfinite(value),
        "kernel '{}': expected a finite number, got '{}'", spec, text);
  return value;
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (std::size_t comma; (comma = text.find(',')) != text.npos; text.remove_prefix(comma + 1)) {
    pieces.push_back(text.substr(0, comma));
  }
  pieces.push_back(text);
  return pieces;
}

void parse_parameters(const Form& form, std::string_view text, const std::string& spec, NodeKernel& kernel) {
  std::vector<std::string_view> seen;
  for (const std::string_view piece : split_at_commas(text)) {
    const std::size_t equals = piece.find('=');
    check(equals != piece.npos, "kernel '{}': expected name=value, got '{}'", spec, piece);
    const std::string_view name = piece.substr(0, equals);
    const Parameter* match = nullptr;
    for (const Parameter& parameter : form.parameters) {
      if (parameter.name == name) match = &parameter;
    }
    if (match == nullptr) {
      const auto known = names_of(form.parameters);
      fail("kernel '{}': {} has no parameter '{}', expected {}{}", spec, form.name, name,
           known.empty() ? "none" : fmt::format("{}", fmt::join(known, " or ")), did_you_mean(name, known));
    }
    check(std::find(seen.begin(), seen.end(), name) == seen.end(),
          "kernel '{}': parameter '{}' is given twice", spec, name);
    seen.push_back(name);
    kernel.*(match->value) = parse_number(piece.substr(equals + 1), spec);
  }
}

}  // namespace

NodeKernel NodeKernel::parse(const std::string& spec) {
  const std::size_t colon = spec.find(':');
  const std::string_view name = std::string_view(spec).substr(0, colon);
  const Form* match = nullptr;
  for (const Form& form : forms()) {
    if (form.name == name) match = &form;
  }
  if (match == nullptr) {
    const auto known = names_of(forms());
    fail("unknown kernel '{}', expected one of {}{}", name, fmt::join(known, ", "),
         did_you_mean(name, known));
  }
  NodeKernel kernel;
  kernel.kind = match->kind;
  const std::string_view rest = colon == spec.npos ? "" : std::string_view(spec).substr(colon + 1);
  if (match->is_series) {
    check(!rest.empty(), "kernel '{}': expected numbers, as in '{}:1,0.5,0.25'", spec, name);
    for (const std::string_view piece : split_at_commas(rest))
      kernel.series.push_back(parse_number(piece, spec));
  } else if (colon != spec.npos) {
    parse_parameters(*match, rest, spec, kernel);
  }
  kernel.check_parameters();
  return kernel;
}

std::string NodeKernel::to_string() const {
  for (const Form& form : forms()) {
    if (form.kind != kind) continue;
    std::vector<std::string> pieces;
    for (const Parameter& parameter : form.parameters) {
      pieces.push_back(fmt::format("{}={}", parameter.name, this->*(parameter.value)));
    }
    for (const double value : form.is_series ? series : std::vector<double>{}) {
      pieces.push_back(fmt::format("{}", value));
    }
    return pieces.empty() ? std::string(form.name) : fmt::format("{}:{}", form.name, fmt::join(pieces, ","));
  }
  fail("NodeKernel::to_string: kind {} is not a KernelKind", static_cast<int>(kind));
}

}  // namespace topomask
