#include "train/initialise_from.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/check.h"
#include "models/token_stacks.h"
#include "nn/rules.h"

namespace topomask {

namespace {

// [to, from]: linear interpolation between the centres of cells.
at::Tensor interpolation_matrix(std::int64_t from, std::int64_t to) {
  at::Tensor matrix = at::zeros({to, from}, at::kDouble);
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (std::int64_t i = 0; i < to; ++i) {
    const double at = std::max(0.0, (static_cast<double>(i) + 0.5) * scale - 0.5);
    const std::int64_t lower = std::min(static_cast<std::int64_t>(at), from - 1);
    const std::int64_t upper = std::min(lower + 1, from - 1);
    const double share = at - static_cast<double>(lower);
    matrix[i][lower] += 1 - share;
    matrix[i][upper] += share;
  }
  return matrix;
}

// f: [heads, K] or [heads, 2, K].
at::Tensor fitted_f(const at::Tensor& f, at::IntArrayRef sizes, const std::string& path) {
  const auto dimensions = static_cast<std::int64_t>(sizes.size());
  check(f.dim() <= dimensions, "--initialise-from {}: its keys have an f of their own; expected --key-f here",
        path);
  at::Tensor own = f.dim() < dimensions ? f.unsqueeze(1).expand({-1, 2, -1}) : f;
  const std::int64_t terms = sizes.back(), known = std::min(terms, own.size(-1));
  return at::constant_pad_nd(own.narrow(-1, 0, known), {0, terms - known}, 0);
}

// offsets: [heads, prod(2 n - 1)].
at::Tensor fitted_offsets(const at::Tensor& offsets, const std::vector<std::int64_t>& from,
                          const std::vector<std::int64_t>& to) {
  at::Tensor index = at::zeros({1}, at::kLong);
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    const at::Tensor displacement = at::arange(1 - to[axis], to[axis]).clamp(1 - from[axis], from[axis] - 1);
    index = (index.unsqueeze(-1) * (2 * from[axis] - 1) + displacement + (from[axis] - 1)).flatten();
  }
  return offsets.index_select(1, index);
}

void check_same_transformer(const std::string& path, const VitOptions& there, const VitOptions& here) {
  const auto same = [&](const char* what, const auto& left, const auto& right) {
    check(left == right,
          "--initialise-from {}: {} is {} there and {} here; only images, classes and masks may differ", path,
          what, left, right);
  };
  same("the encoder", word_of(there.encoder), word_of(here.encoder));
  same("channels", there.channels, here.channels);
  same("patch", there.patch, here.patch);
  same("layers", there.layers, here.layers);
  same("embedding", there.embedding, here.embedding);
  same("heads", there.heads, here.heads);
  same("mlp", there.mlp, here.mlp);
  same("pooling", word_of(there.pooling), word_of(here.pooling));
  if (here.encoder == Encoder::image) return;
  same("tubelet", there.tubelet, here.tubelet);
  same("temporal-layers", there.total_layers(), here.total_layers());
}

// A mask's parameter, or nothing where it has no counterpart there.
at::Tensor fitted_mask(const std::string& kind, const at::Tensor& known, const NamedParameter& parameter,
                       const TokenStack& there, const TokenStack& here, const VitCheckpoint& from,
                       const VitOptions& to, const std::string& path) {
  if (kind == "f") {
    const bool one_hot_there = mask_ensembles(there.attention, from.model.mask) == Ensembles::asymmetric;
    const bool one_hot_here = mask_ensembles(here.attention, to.mask) == Ensembles::asymmetric;
    // The f of one-hot keys is alpha, a series of another meaning.
    return one_hot_there == one_hot_here ? fitted_f(known, parameter.tensor.sizes(), path) : at::Tensor();
  }
  if (kind == "offsets") return fitted_offsets(known, there.grid, here.grid);
  // Learned features belong to places: as many tokens in other rows and columns are other places.
  return there.grid == here.grid ? known : at::Tensor();
}

}  // namespace

at::Tensor interpolate_positions(const at::Tensor& positions, std::int64_t first,
                                 const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to) {
  const std::int64_t cells = std::accumulate(from.begin(), from.end(), std::int64_t{1}, std::multiplies<>());
  check(positions.dim() == 3 && positions.size(0) == 1 && positions.size(1) == first + cells && first >= 0,
        "positions: expected [1, {} + {}, C] for a grid of {}, got [{}]", first, cells, fmt::join(from, "x"),
        fmt::join(positions.sizes(), ", "));
  check(
      from.size() == to.size() && std::all_of(to.begin(), to.end(), [](auto extent) { return extent >= 1; }),
      "positions: a grid of {} cannot be interpolated to one of {}", fmt::join(from, "x"),
      fmt::join(to, "x"));
  if (from == to) return positions;
  std::vector<std::int64_t> shape = from;
  shape.push_back(positions.size(2));
  at::Tensor values = positions[0].slice(0, first).to(at::kDouble).reshape(shape);
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    const auto dimension = static_cast<std::int64_t>(axis);
    values = at::tensordot(interpolation_matrix(from[axis], to[axis]), values, {1}, {dimension})
                 .movedim(0, dimension);
  }
  const at::Tensor tokens = values.reshape({1, -1, positions.size(2)}).to(positions.scalar_type());
  return at::cat({positions.slice(1, 0, first), tokens}, 1);
}

void initialise_from(const std::string& path, const VitOptions& model,
                     const std::vector<std::string>& class_names,
                     const std::vector<NamedParameter>& parameters) {
  const VitCheckpoint from = read_vit_checkpoint(path);
  check_same_transformer(path, from.model, model);
  const bool same_classes =
      from.model.num_classes == model.num_classes && from.images.class_names == class_names;
  const std::vector<TokenStack> there = token_stacks(from.model), here = token_stacks(model);
  const at::NoGradGuard no_grad;
  for (const NamedParameter& parameter : parameters) {
    const std::string& name = parameter.name;
    if (name.starts_with("head.") && !same_classes) continue;
    const std::size_t stack = here.size() > 1 && name.starts_with(here[1].prefix) ? 1 : 0;
    const auto known = from.weights.find(name);
    check(known == from.weights.end() || at::isfinite(known->second).all().item<bool>(),
          "--initialise-from {}: tensor '{}' holds a NaN or an infinity, its run has diverged", path, name);
    if (parameter.kind == ParameterKind::mask) {
      if (known == from.weights.end()) continue;
      const std::string kind = name.substr(name.rfind('.') + 1);
      const at::Tensor fitted =
          fitted_mask(kind, known->second, parameter, there[stack], here[stack], from, model, path);
      if (fitted.defined()) parameter.tensor.detach().copy_(fitted);
      continue;
    }
    check(known != from.weights.end(), "--initialise-from {}: there is no tensor '{}'", path, name);
    at::Tensor tensor = known->second;
    if (name.ends_with("position_embedding")) {
      const std::int64_t first = tensor.size(1) - there[stack].num_tokens();
      tensor = interpolate_positions(tensor, first, there[stack].grid, here[stack].grid);
    }
    check(tensor.sizes() == parameter.tensor.sizes(),
          "--initialise-from {}: tensor '{}' is [{}] there and [{}] here", path, name,
          fmt::join(tensor.sizes(), ", "), fmt::join(parameter.tensor.sizes(), ", "));
    parameter.tensor.detach().copy_(tensor);
  }
}

}  // namespace topomask
