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

struct KernelEntry {
  std::string_view name;
  KernelKind kind;
  std::string_view description;
  std::vector<Parameter> parameters;
  std::string_view series;  // what a list of numbers instead of key=value pairs is called
};

const std::vector<KernelEntry>& kernel_entries() {
  static const std::vector<KernelEntry> table = {
      {"reg-laplacian",
       KernelKind::regularised_laplacian,
       "regularised Laplacian, (I + sigma2 L)^-d",
       {{"d", &NodeKernel::d}, {"sigma2", &NodeKernel::sigma2}},
       ""},
      {"diffusion", KernelKind::diffusion, "heat, exp(-sigma2 L / 2)", {{"sigma2", &NodeKernel::sigma2}}, ""},
      {"p-step",
       KernelKind::p_step,
       "random walks of p steps, (a I - L)^p with a >= 2",
       {{"p", &NodeKernel::p}, {"a", &NodeKernel::a}},
       ""},
      {"inverse-cosine", KernelKind::inverse_cosine, "cos(pi L / 4)", {}, ""},
      {"matern",
       KernelKind::matern,
       "Matern, (2 nu / kappa^2 + L)^-nu",
       {{"nu", &NodeKernel::nu}, {"kappa", &NodeKernel::kappa}},
       ""},
      {"coefficients", KernelKind::coefficients, "sum_k Ak W^k", {}, "A0,A1,..."},
      {"modulation", KernelKind::modulation, "(sum_k Fk W^k)^2", {}, "F0,F1,..."},
  };
  return table;
}

// "nu=1.5,kappa=1" of this kernel.
std::string values_of(const KernelEntry& entry, const NodeKernel& kernel) {
  std::vector<std::string> pieces;
  for (const Parameter& parameter : entry.parameters)
    pieces.push_back(fmt::format("{}={}", parameter.name, kernel.*(parameter.value)));
  return fmt::format("{}", fmt::join(pieces, ","));
}

template <class Named>
std::vector<std::string_view> names_of(const std::vector<Named>& items) {
  std::vector<std::string_view> names;
  for (const Named& item : items) names.push_back(item.name);
  return names;
}

double parse_term(std::string_view text, const std::string& spec) {
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

void parse_parameters(const KernelEntry& entry, std::string_view text, const std::string& spec,
                      NodeKernel& kernel) {
  std::vector<std::string_view> seen;
  for (const std::string_view piece : split_at_commas(text)) {
    const std::size_t equals = piece.find('=');
    check(equals != piece.npos, "kernel '{}': expected name=value, got '{}'", spec, piece);
    const std::string_view name = piece.substr(0, equals);
    const Parameter* match = nullptr;
    for (const Parameter& parameter : entry.parameters) {
      if (parameter.name == name) match = &parameter;
    }
    if (match == nullptr) {
      const auto known = names_of(entry.parameters);
      fail("kernel '{}': {} has no parameter '{}', expected {}{}", spec, entry.name, name,
           known.empty() ? "none" : fmt::format("{}", fmt::join(known, " or ")), did_you_mean(name, known));
    }
    check(std::find(seen.begin(), seen.end(), name) == seen.end(),
          "kernel '{}': parameter '{}' is given twice", spec, name);
    seen.push_back(name);
    kernel.*(match->value) = parse_term(piece.substr(equals + 1), spec);
  }
}

}  // namespace

NodeKernel NodeKernel::parse(const std::string& spec) {
  const std::size_t colon = spec.find(':');
  const std::string_view name = std::string_view(spec).substr(0, colon);
  const KernelEntry* match = nullptr;
  for (const KernelEntry& entry : kernel_entries()) {
    if (entry.name == name) match = &entry;
  }
  if (match == nullptr) {
    const auto known = names_of(kernel_entries());
    fail("unknown kernel '{}', expected one of {}{}", name, fmt::join(known, ", "),
         did_you_mean(name, known));
  }
  NodeKernel kernel;
  kernel.kind = match->kind;
  const std::string_view rest = colon == spec.npos ? "" : std::string_view(spec).substr(colon + 1);
  if (!match->series.empty()) {
    check(!rest.empty(), "kernel '{}': expected numbers, as in '{}:1,0.5,0.25'", spec, name);
    for (const std::string_view piece : split_at_commas(rest))
      kernel.series.push_back(parse_term(piece, spec));
  } else if (colon != spec.npos) {
    parse_parameters(*match, rest, spec, kernel);
  }
  kernel.check_parameters();
  return kernel;
}

std::string NodeKernel::to_string() const {
  for (const KernelEntry& entry : kernel_entries()) {
    if (entry.kind != kind) continue;
    const std::string values =
        entry.series.empty() ? values_of(entry, *this) : fmt::format("{}", fmt::join(series, ","));
    return values.empty() ? std::string(entry.name) : fmt::format("{}:{}", entry.name, values);
  }
  fail("NodeKernel::to_string: kind {} is not a KernelKind", static_cast<int>(kind));
}

const std::vector<KernelForm>& kernel_forms() {
  static const std::vector<KernelForm> forms = [] {
    std::vector<KernelForm> all;
    for (const KernelEntry& entry : kernel_entries()) {
      const NodeKernel defaults;
      KernelForm form{std::string(entry.name), "", std::string(entry.description), {}};
      const std::string values =
          entry.series.empty() ? values_of(entry, defaults) : std::string(entry.series);
      form.form = values.empty() ? form.name : fmt::format("{}:{}", form.name, values);
      for (const Parameter& parameter : entry.parameters)
        form.parameters.push_back({std::string(parameter.name), defaults.*(parameter.value)});
      all.push_back(std::move(form));
    }
    return all;
  }();
  return forms;
}

std::string kernel_forms_text() {
  std::string text;
  for (const KernelForm& form : kernel_forms())
    text += fmt::format("  {:<34}{}\n", form.form, form.description);
  return text;
}

}  // namespace topomask
