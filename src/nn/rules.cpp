#include "nn/rules.h"

#include <torch/types.h>

#include <cmath>

#include "core/check.h"
#include "core/random.h"

namespace topomask {

double feature_epsilon(std::int64_t channels) {
  return 1e-3 * std::pow(static_cast<double>(channels), 0.25);
}

bool has_importance_weights(AttentionVariant variant) {
  return variant != AttentionVariant::ad_hoc;
}

Ensembles mask_ensembles(AttentionVariant variant) {
  return variant == AttentionVariant::grf_asymmetric ? Ensembles::asymmetric : Ensembles::shared;
}

std::optional<VariantParameter> mask_parameter(const VitOptions& options) {
  const std::int64_t nodes = options.num_patches();
  switch (options.attention) {
    case AttentionVariant::softmax:
    case AttentionVariant::linear:
    case AttentionVariant::neighbours:
      return std::nullopt;
    case AttentionVariant::toeplitz:
      return VariantParameter{
          "offsets", {options.heads, (2 * options.grid_height() - 1) * (2 * options.grid_width() - 1)}};
    case AttentionVariant::learned_features:
      return VariantParameter{"features", {options.heads, nodes, nodes}};
    case AttentionVariant::power_series:
    case AttentionVariant::softmax_grf:
    case AttentionVariant::grf:
    case AttentionVariant::grf_asymmetric:
    case AttentionVariant::ad_hoc:
      return VariantParameter{"f", {options.heads, options.mask.max_hops + 1}};
  }
  fail("unknown variant of attention {}", static_cast<int>(options.attention));
}

at::Tensor initial_f(int max_hops) {
  return at::arange(max_hops + 1, at::kFloat).mul(-0.01).exp();
}

std::uint64_t layer_walk_seed(const MaskOptions& options, std::int64_t layer) {
  return options.share_walks ? options.seed : derive_seed(options.seed, static_cast<std::uint64_t>(layer));
}

}  // namespace topomask
