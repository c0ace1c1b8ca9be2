// Masks of the catalogue as operators: how they are made, and what can be asked of them.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <fmt/ranges.h>
#include <torch/library.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/numbers.h"
#include "core/parallel.h"
#include "ops/arguments.h"
#include "ops/expressions.h"
#include "ops/library_call.h"
#include "topomask/device.h"
#include "topomask/grf_mask.h"

namespace topomask::ops {
namespace {

using Json = nlohmann::ordered_json;
using ExpressionTensors = std::tuple<std::string, Tensors, Tensors>;

ExpressionTensors tensors_of(Expression expression) {
  return {std::move(expression.recipe), std::move(expression.constants), std::move(expression.parameters)};
}

MaskRequest request_on(std::string_view name, at::TensorList graph, bool directed, std::int64_t out_degree,
                       std::int64_t heads, std::string_view settings) {
  MaskRequest request = request_of(name, settings);
  request.heads = heads;
  if (graph.empty()) return request;
  check(graph.size() == 3 || graph.size() == 4,
        "make_mask: expected row_ptr, col, weight and perhaps ptr, got {}", graph.size());
  request.graph = graph_from(graph[0], graph[1], graph[2], directed);
  request.graph->out_degree = out_degree;
  return request;
}

std::string_view only_parameter(std::string_view mask) {
  const MaskInfo& info = mask_info(mask);
  check(info.parameters.size() == 1, "{}: there is no argument 'init'", info.python_name);
  return info.parameters[0].name;
}

// `given`: the parameters that do not start as the catalogue says; `init` is the only one that there is.
ExpressionTensors make_mask_op(std::string_view name, at::TensorList graph, bool directed,
                               std::int64_t out_degree, std::int64_t num_nodes, std::int64_t heads,
                               std::string_view settings, const c10::List<std::string>& given_names,
                               at::TensorList given, at::ScalarType dtype, at::Device device) {
  MaskRequest request = request_on(name, graph, directed, out_degree, heads, settings);
  request.num_nodes = num_nodes;
  request.dtype = dtype;
  request.device = device;
  check(given_names.size() == given.size(), "make_mask: expected a name for each of {} tensors, got {}",
        given.size(), given_names.size());
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string parameter = given_names.get(i);
    request.parameters[parameter == "init" ? std::string(only_parameter(name)) : parameter] = given[i];
  }
  return tensors_of(describe_mask(request, graph.size() == 4 ? graph[3] : at::Tensor()));
}

std::string mask_advice_op(std::string_view name, at::TensorList graph, bool directed, std::int64_t heads,
                           std::string_view settings) {
  return mask_advice(request_on(name, graph, directed, -1, heads, settings));
}

// Neither returns what it was given: an operator's results are not its arguments.
std::tuple<std::string, Tensors> make_tensor_mask_op(std::string_view name, at::TensorList constants,
                                                     at::TensorList parameters) {
  Expression made = describe_tensors(std::string(name), constants.vec(), parameters.vec());
  return {std::move(made.recipe), std::move(made.constants)};
}

std::string combine_masks_op(std::string_view name, const c10::List<std::string>& parts,
                             at::IntArrayRef numbers, at::TensorList constants, at::TensorList parameters) {
  return describe_combination(std::string(name), parts.vec(), numbers.vec(), constants.vec(),
                              parameters.vec())
      .recipe;
}

// A default as a JSON value; null where it depends on the graph.
Json default_of(const MaskSetting& setting) {
  const std::string text(setting.fallback);
  if (text.empty()) return nullptr;
  switch (setting.type) {
    case SettingType::integer:
      return std::stoll(text);
    case SettingType::real:
      return std::stod(text);
    case SettingType::flag:
      return text == "true";
    default:
      return text;
  }
}

// What a class of another language takes beside the graph: settings, `heads`, and parameters by their names.
// A parameter that is alone, and more than a number for each head, is called `init`; where there is a setting
// of that name, it is text or a tensor. `start`: what a parameter is where it is not given.
Json arguments_of(const MaskInfo& info) {
  Json arguments = Json::array();
  for (const MaskSetting& setting : info.settings)
    arguments.push_back(
        {{"name", setting.name}, {"default", default_of(setting)}, {"description", setting.description}});
  std::vector<std::string_view> names;
  for (const MaskParameter& parameter : info.parameters) names.push_back(parameter.name);
  if (names.empty()) return arguments;
  arguments.push_back({{"name", "heads"},
                       {"default", 1},
                       {"description", fmt::format("each has its own {}; 1 is one mask that serves all",
                                                   fmt::join(names, " and "))}});
  for (const MaskParameter& parameter : info.parameters) {
    const bool number = parameter.shape == "[heads]";
    const std::string_view name = names.size() == 1 && !number ? "init" : parameter.name;
    const auto setting = std::find_if(arguments.begin(), arguments.end(),
                                      [&](const Json& known) { return known["name"] == name; });
    if (setting == arguments.end()) {
      arguments.push_back({{"name", name},
                           {"default", nullptr},
                           {"description", fmt::format("{} at the start, {}{}", parameter.name,
                                                       number ? "a number or " : "", parameter.shape)},
                           {"start", parameter.start}});
    } else {
      (*setting)["description"] =
          fmt::format("{}, or a tensor {}", (*setting)["description"].get<std::string>(), parameter.shape);
      arguments.push_back(
          {{"name", "dtype"},
           {"default", nullptr},
           {"description", fmt::format("of {}, float32 where it is not given", parameter.name)}});
    }
  }
  return arguments;
}

// The catalogue as JSON: the Python classes have their arguments and docstrings from it.
std::string mask_catalogue_op() {
  Json catalogue = Json::array();
  for (const MaskInfo& info : mask_catalogue()) {
    Json row = {
        {"name", info.name},       {"python_name", info.python_name}, {"description", info.description},
        {"product", info.product}, {"structure", info.structure},     {"on_graph", info.on_graph},
        {"by_name", info.by_name}, {"settings", Json::array()},       {"parameters", Json::array()}};
    for (const MaskSetting& setting : info.settings)
      row["settings"].push_back(
          {{"name", setting.name}, {"default", default_of(setting)}, {"description", setting.description}});
    for (const MaskParameter& parameter : info.parameters)
      row["parameters"].push_back({{"name", parameter.name},
                                   {"shape", parameter.shape},
                                   {"start", parameter.start},
                                   {"former_name", parameter.former_name}});
    row["arguments"] = arguments_of(info);
    catalogue.push_back(std::move(row));
  }
  return catalogue.dump();
}

// num_nodes, heads, entries (-1: not sparse), whether they were counted, whether each head has a pattern,
// rank
std::vector<std::int64_t> mask_profile_op(std::string_view recipe) {
  const MaskProfile profile = profile_of(std::string(recipe));
  return {profile.num_nodes,        profile.heads, profile.entries, profile.entries_counted,
          profile.pattern_per_head, profile.rank};
}

// ---- products ----

TensorFunction run_multiply(std::string_view recipe, at::TensorList constants, bool transposed) {
  return [text = std::string(recipe), kept = constants.vec(), transposed](const Tensors& x) {
    return mask_of(text, kept, at::TensorList(x).slice(1))->multiply(x[0], transposed).contiguous();
  };
}

Tensors with_x(const at::Tensor& x, at::TensorList parameters) {
  Tensors result = {x};
  result.insert(result.end(), parameters.begin(), parameters.end());
  return result;
}

at::Tensor mask_multiply_op(std::string_view recipe, at::TensorList constants, at::TensorList parameters,
                            const at::Tensor& x, bool transposed) {
  return without_graph(run_multiply(recipe, constants, transposed), with_x(x, parameters));
}

Tensors mask_multiply_backward_op(const at::Tensor& grad, std::string_view recipe, at::TensorList constants,
                                  at::TensorList parameters, const at::Tensor& x, bool transposed,
                                  at::IntArrayRef needs) {
  return gradients_of(run_multiply(recipe, constants, transposed), with_x(x, parameters), grad,
                      wanted(needs));
}

at::Tensor mask_multiply_autograd(std::string_view recipe, at::TensorList constants,
                                  at::TensorList parameters, const at::Tensor& x, bool transposed) {
  static const auto forward = find_operator<decltype(mask_multiply_op)>("topomask::mask_multiply");
  static const auto backward =
      find_operator<decltype(mask_multiply_backward_op)>("topomask::mask_multiply_backward");
  LibraryCall call;
  call.run = run_multiply(recipe, constants, transposed);
  call.forward_operator = [=, text = std::string(recipe), kept = constants.vec()](const Tensors& in) {
    return forward.call(text, kept, at::TensorList(in).slice(1), in[0], transposed);
  };
  call.backward_operator = [=, text = std::string(recipe), kept = constants.vec()](
                               const at::Tensor& grad, const Tensors& in, const std::vector<bool>& needs) {
    const std::vector<std::int64_t> flags(needs.begin(), needs.end());
    return backward.call(grad, text, kept, at::TensorList(in).slice(1), in[0], transposed, flags);
  };
  return differentiable(with_x(x, parameters), call);
}

// ---- the matrix, its entries and its factors ----

// "dense": [heads, N, N]; "values": those of all patterns, one after the other, flat; "factors": left and
// right, [2, heads, N, R].
TensorFunction run_view(std::string_view recipe, at::TensorList constants, std::string_view what,
                        at::ScalarType dtype) {
  return [text = std::string(recipe), kept = constants.vec(), what = std::string(what),
          dtype](const Tensors& x) -> at::Tensor {
    const MaskPtr mask = mask_of(text, kept, x);
    if (what == "dense") return mask->dense(dtype).to(kept.front().device()).contiguous();
    if (what == "values") {
      Tensors flat;
      for (const SparseEntries& entries : mask->entries()) flat.push_back(entries.values.to(dtype).flatten());
      return at::cat(flat);
    }
    check(what == "factors", "mask_view: expected dense, values or factors, got '{}'", what);
    const Factors factors = mask->factors();
    const std::vector<std::int64_t> shape = {std::max(factors.left.size(0), factors.right.size(0)),
                                             factors.left.size(1), factors.left.size(2)};
    return at::stack({factors.left.to(dtype).expand(shape), factors.right.to(dtype).expand(shape)})
        .to(kept.front().device());
  };
}

at::Tensor mask_view_op(std::string_view recipe, at::TensorList constants, at::TensorList parameters,
                        std::string_view what, at::ScalarType dtype) {
  // A copy: what an operator returns belongs to the caller.
  return without_graph(run_view(recipe, constants, what, dtype), parameters.vec()).clone();
}

Tensors mask_view_backward_op(const at::Tensor& grad, std::string_view recipe, at::TensorList constants,
                              at::TensorList parameters, std::string_view what, at::ScalarType dtype,
                              at::IntArrayRef needs) {
  return gradients_of(run_view(recipe, constants, what, dtype), parameters.vec(), grad, wanted(needs));
}

at::Tensor mask_view_autograd(std::string_view recipe, at::TensorList constants, at::TensorList parameters,
                              std::string_view what, at::ScalarType dtype) {
  static const auto forward = find_operator<decltype(mask_view_op)>("topomask::mask_view");
  static const auto backward = find_operator<decltype(mask_view_backward_op)>("topomask::mask_view_backward");
  LibraryCall call;
  call.run = run_view(recipe, constants, what, dtype);
  call.forward_operator = [=, text = std::string(recipe), kept = constants.vec(), word = std::string(what)](
                              const Tensors& in) { return forward.call(text, kept, in, word, dtype); };
  call.backward_operator = [=, text = std::string(recipe), kept = constants.vec(), word = std::string(what)](
                               const at::Tensor& grad, const Tensors& in, const std::vector<bool>& needs) {
    const std::vector<std::int64_t> flags(needs.begin(), needs.end());
    return backward.call(grad, text, kept, in, word, dtype, flags);
  };
  return differentiable(parameters.vec(), call);
}

// row_ptr and col of each pattern, one after the other.
Tensors mask_pattern_op(std::string_view recipe, at::TensorList constants, at::TensorList parameters) {
  Tensors result;
  for (const SparseEntries& entries : mask_of(std::string(recipe), constants, parameters)->entries()) {
    result.push_back(entries.pattern->row_ptr.clone());
    result.push_back(entries.pattern->col.clone());
  }
  return result;
}

// Features as rows on the CPU.
class CsrFeatures {
 public:
  CsrFeatures(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& values)
      : row_ptr_(row_ptr.cpu()), col_(col.cpu()), values_(values.to(at::kCPU, at::kDouble).contiguous()) {}

  std::int64_t num_nodes() const { return row_ptr_.size(0) - 1; }
  template <class Visit>
  void for_row(std::int64_t i, Visit&& visit) const {
    const std::int64_t* begin = row_ptr_.const_data_ptr<std::int64_t>();
    for (std::int64_t e = begin[i]; e < begin[i + 1]; ++e)
      visit(col_.const_data_ptr<std::int32_t>()[e], values_.const_data_ptr<double>()[e]);
  }

 private:
  at::Tensor row_ptr_, col_, values_;
};

// Phi and Psi of a head, as row_ptr, col and values each.
Tensors features_of_head(std::string_view recipe, at::TensorList constants, at::TensorList parameters,
                         std::int64_t head) {
  const MaskPtr mask = mask_of(std::string(recipe), constants, parameters);
  const auto* grf = dynamic_cast<const GrfMask*>(mask.get());
  check(grf != nullptr, "mask '{}': has no graph random features", mask->name());
  check(head >= 0 && head < grf->heads(), "mask '{}': head must be from 0 to {}, got {}", mask->name(),
        grf->heads() - 1, head);
  const GraphFeatures& features = grf->features(head);
  Tensors result;
  for (const WalkFeatures* part : {&features.query, &features.key}) {
    const bool of_keys = part == &features.key;
    const bool one_hot = of_keys && features.ensembles == Ensembles::asymmetric;
    const at::Tensor f = (of_keys ? grf->key_f() : grf->query_f())[head].detach();
    const at::Tensor values = part->values(one_hot ? at::ones_like(f).slice(0, 0, 1) : f);
    result.insert(result.end(), {part->row_ptr.clone(), part->col.clone(), values.clone()});
  }
  return result;
}

// Torch says once that sparse rows are new to it.
struct SilentHandler : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// The same as sparse tensors [N, N].
Tensors mask_features_op(std::string_view recipe, at::TensorList constants, at::TensorList parameters,
                         std::int64_t head) {
  const Tensors parts = features_of_head(recipe, constants, parameters, head);
  SilentHandler silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  Tensors result;
  for (std::size_t i = 0; i < parts.size(); i += 3) {
    const std::int64_t nodes = parts[i].size(0) - 1;
    result.push_back(at::_sparse_csr_tensor_unsafe(parts[i], parts[i + 1].to(at::kLong), parts[i + 2],
                                                   {nodes, nodes},
                                                   parts[i + 2].options().layout(at::kSparseCsr)));
  }
  return result;
}

// The entries of Phi Psi^T between some rows and columns, [m, n] float64; of the first head.
at::Tensor feature_products(std::string_view recipe, at::TensorList constants, at::TensorList parameters,
                            const at::Tensor& rows, const at::Tensor& columns) {
  const Tensors parts = features_of_head(recipe, constants, parameters, 0);
  const auto numbers = [](const at::Tensor& x) { return x.to(at::kCPU, at::kLong).contiguous(); };
  const at::Tensor row = numbers(rows), column = numbers(columns);
  const CsrFeatures phi(parts[0], parts[1], parts[2]), psi(parts[3], parts[4], parts[5]);
  for (const at::Tensor& nodes : {row, column})
    check(nodes.dim() == 1 && nodes.ge(0).logical_and(nodes.lt(phi.num_nodes())).all().item<bool>(),
          "feature_products: expected [n] nodes from 0 to {}", phi.num_nodes() - 1);
  at::Tensor result = at::empty({row.size(0), column.size(0)}, at::kDouble);
  double* out = result.mutable_data_ptr<double>();
  const std::int64_t *from = row.const_data_ptr<std::int64_t>(), *to = column.const_data_ptr<std::int64_t>();
  // One column is written out densely at a time, and cleared again.
  parallel_for(column.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> dense(static_cast<std::size_t>(phi.num_nodes()), 0.0);
    for (std::int64_t j = begin; j < end; ++j) {
      psi.for_row(to[j], [&](std::int32_t node, double value) { dense[node] = value; });
      for (std::int64_t i = 0; i < row.size(0); ++i) {
        double sum = 0;
        phi.for_row(from[i], [&](std::int32_t node, double value) { sum += value * dense[node]; });
        out[i * column.size(0) + j] = sum;
      }
      psi.for_row(to[j], [&](std::int32_t node, double) { dense[node] = 0; });
    }
  });
  return result;
}

// ---- shapes for tracing ----

at::Tensor mask_multiply_shape(std::string_view, at::TensorList, at::TensorList, const at::Tensor& x, bool) {
  return shape_only(x.sym_sizes(), x);
}

Tensors mask_multiply_backward_shapes(const at::Tensor&, std::string_view, at::TensorList,
                                      at::TensorList parameters, const at::Tensor& x, bool,
                                      at::IntArrayRef needs) {
  return gradient_shapes(with_x(x, parameters), needs);
}

Tensors mask_view_backward_shapes(const at::Tensor&, std::string_view, at::TensorList,
                                  at::TensorList parameters, std::string_view, at::ScalarType,
                                  at::IntArrayRef needs) {
  return gradient_shapes(parameters.vec(), needs);
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, Meta, m) {
  m.impl("mask_multiply", mask_multiply_shape);
  m.impl("mask_multiply_backward", mask_multiply_backward_shapes);
  m.impl("mask_view_backward", mask_view_backward_shapes);
}

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("make_mask", make_mask_op);
  m.impl("mask_advice", mask_advice_op);
  m.impl("make_tensor_mask", make_tensor_mask_op);
  m.impl("combine_masks", combine_masks_op);
  m.impl("mask_profile", mask_profile_op);
  m.impl("mask_catalogue", mask_catalogue_op);
  m.impl("mask_multiply", mask_multiply_op);
  m.impl("mask_multiply_backward", mask_multiply_backward_op);
  m.impl("mask_view", mask_view_op);
  m.impl("mask_view_backward", mask_view_backward_op);
  m.impl("mask_pattern", mask_pattern_op);
  m.impl("mask_features", mask_features_op);
  m.impl("feature_products", feature_products);
  m.impl("forget_masks", forget_expired_masks);
  m.impl("parse_extent", parse_extent);
  m.impl("cuda_is_built", cuda_is_built);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("mask_multiply", mask_multiply_autograd);
  m.impl("mask_view", mask_view_autograd);
}

}  // namespace topomask::ops
