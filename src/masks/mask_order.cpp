#include "masks/mask_order.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/check.h"
#include "core/numbers.h"
#include "core/tensors.h"
#include "topomask/kernels.h"

namespace topomask {

bool begins_with_number(std::string_view text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-' ||
                           text[0] == '.' || text[0] == '+');
}

MaskOrder::MaskOrder(const MaskInfo& info, const MaskRequest& request) : info_(info), request_(request) {
  check(request.heads >= 1, "{}: heads must be at least 1, got {}", info.python_name, request.heads);
  check(!info.on_graph || request.graph, "{}: graph must be given", info.python_name);
  for (const auto& [name, value] : request.settings) setting(name);
  std::vector<std::string_view> known;
  for (const MaskParameter& parameter : info.parameters) known.push_back(parameter.name);
  for (const auto& [name, tensor] : request.parameters) {
    check(std::find(known.begin(), known.end(), name) != known.end(),
          "{}: there is no parameter '{}', expected {}", info.python_name, name,
          known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  }
}

std::string MaskOrder::label(std::string_view name) const {
  return fmt::format("{}: {}", info_.python_name, name);
}

const MaskSetting& MaskOrder::setting(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const MaskSetting& known : info_.settings) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  check(!names.empty(), "{}: there is no setting '{}', expected none", info_.python_name, name);
  fail_unknown_word(fmt::format("setting of {}", info_.python_name), name, names);
}

std::string_view MaskOrder::shape_of(std::string_view parameter_name) const {
  for (const MaskParameter& known : info_.parameters) {
    if (known.name == parameter_name) return known.shape;
  }
  return "?";
}

// ---- settings ----

std::string MaskOrder::text(std::string_view name) const {
  const MaskSetting& known = setting(name);
  const auto found = request_.settings.find(std::string(name));
  return found == request_.settings.end() ? std::string(known.fallback) : found->second;
}

std::int64_t MaskOrder::integer(std::string_view name) const {
  return parse_integer(text(name), label(name));
}

std::uint64_t MaskOrder::seed() const {
  return parse_seed(text("seed"), label("seed"));
}

double MaskOrder::real(std::string_view name) const {
  const double value = parse_number(text(name), label(name));
  check(std::isfinite(value), "{}: expected a finite number, got {}", label(name), value);
  return value;
}

bool MaskOrder::flag(std::string_view name) const {
  const std::string value = text(name);
  check(value == "true" || value == "false", "{}: expected true or false, got '{}'", label(name), value);
  return value == "true";
}

std::int64_t MaskOrder::integer_or_size(std::string_view setting_name, std::string_view parameter_name,
                                        int dimension, std::int64_t less) const {
  const at::Tensor* tensor = given(parameter_name);
  if (is_given(setting_name) || tensor == nullptr || tensor->dim() <= std::max(dimension, 0))
    return integer(setting_name);
  return tensor->size(dimension) - less;
}

// ---- parameters ----

const at::Tensor* MaskOrder::given(std::string_view parameter_name) const {
  const auto found = request_.parameters.find(std::string(parameter_name));
  return found == request_.parameters.end() ? nullptr : &found->second;
}

at::Tensor MaskOrder::parameter(std::string_view name, const at::Tensor& start, int free_dimension) const {
  std::vector<std::int64_t> shape = start.sizes().vec();
  shape[0] = heads();
  const at::Tensor* found = given(name);
  if (found == nullptr) return start.to(device(), request_.dtype).expand(shape).contiguous();
  at::Tensor tensor = *found;
  if (tensor.dim() + 1 == start.dim()) tensor = tensor.unsqueeze(0).expand({heads(), -1}).contiguous();
  if (free_dimension >= 0 && tensor.dim() == start.dim())
    shape[static_cast<std::size_t>(free_dimension)] = tensor.size(free_dimension);
  check(tensor.is_floating_point() && tensor.sizes() == at::IntArrayRef(shape),
        "{}: {} must be a real tensor {} = [{}], got {}", info_.python_name, name, shape_of(name),
        fmt::join(shape, ", "), describe(*found));
  const bool wide = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
  return wide ? tensor : tensor.to(at::kFloat);
}

at::Tensor MaskOrder::per_head(std::string_view name, double start) const {
  const at::Tensor* found = given(name);
  if (found == nullptr || found->dim() != 0) return parameter(name, at::full({1}, start, at::kDouble));
  return found->to(device(), request_.dtype).expand({heads()}).contiguous();
}

at::Tensor MaskOrder::terms_of(std::string_view setting_name, std::int64_t last, bool of_modulation) const {
  const std::string init = text(setting_name);
  std::vector<double> terms;
  if (begins_with_number(init)) {
    terms = parse_numbers(init, label(setting_name));
    check(static_cast<std::int64_t>(terms.size()) <= last + 1,
          "{}: expected at most {} numbers (hops 0 to {}), got {}", label(setting_name), last + 1, last,
          terms.size());
  } else {
    const NodeKernel kernel = NodeKernel::parse(init);
    const int power = static_cast<int>(last);
    terms = of_modulation ? kernel.modulation_up_to(power) : kernel.coefficients_up_to(power);
  }
  terms.resize(static_cast<std::size_t>(last) + 1, 0.0);
  return at::tensor(terms, at::kDouble);
}

at::Tensor MaskOrder::series(std::string_view name, std::int64_t last, bool of_modulation) const {
  return parameter(name, terms_of("init", last, of_modulation).unsqueeze(0));
}

at::Tensor MaskOrder::modulations(std::int64_t last, bool of_modulation) const {
  const at::Tensor* f = given("f");
  const bool tensor_has_both = f != nullptr && f->dim() == 3;
  if (!is_given("key_init") && !tensor_has_both) return series("f", last, of_modulation);
  check(of_modulation, "{}: asymmetric ensembles have one-hot keys, which have no f of their own",
        label("key_init"));
  check(tensor_has_both || f == nullptr,
        "{}: f must be [heads, 2, max_hops + 1] where the keys have their own, got {}", label("key_init"),
        f == nullptr ? "" : describe(*f));
  const std::string_view of_keys = is_given("key_init") ? "key_init" : "init";
  return parameter("f",
                   at::stack({terms_of("init", last, true), terms_of(of_keys, last, true)}).unsqueeze(0));
}

}  // namespace topomask
