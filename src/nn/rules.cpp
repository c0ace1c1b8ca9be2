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

Ensembles mask_ensembles(AttentionVariant variant, const MaskOptions& options) {
  if (variant == AttentionVariant::power_series) return Ensembles::shared;  // it has no walks, and is S S^T
  return variant == AttentionVariant::grf_asymmetric ? Ensembles::asymmetric : options.ensembles;
}

bool has_f(AttentionVariant variant) {
  const auto parameter = mask_parameter(variant, {}, 1, {1});
  return parameter && parameter->name == "f";
}

bool has_random_features(AttentionVariant variant) {
  return variant == AttentionVariant::performer || variant == AttentionVariant::performer_grf;
}

std::optional<VariantParameter> mask_parameter(AttentionVariant variant, const MaskOptions& options,
                                               std::int64_t heads, const std::vector<std::int64_t>& grid) {
  std::int64_t nodes = 1, offsets = 1;
  for (const std::int64_t extent : grid) nodes *= extent, offsets *= 2 * extent - 1;
  switch (variant) {
    case AttentionVariant::softmax:
    case AttentionVariant::linear:
    case AttentionVariant::performer:
    case AttentionVariant::neighbours:
      return std::nullopt;
    case AttentionVariant::toeplitz:
      return VariantParameter{"offsets", {heads, offsets}};
    case AttentionVariant::learned_features:
      return VariantParameter{"features", {heads, nodes, nodes}};
    case AttentionVariant::power_series:
    case AttentionVariant::softmax_grf:
    case AttentionVariant::softmax_grf_bias:
    case AttentionVariant::performer_grf:
    case AttentionVariant::grf:
    case AttentionVariant::grf_asymmetric:
    case AttentionVariant::ad_hoc:
      if (options.key_f) return VariantParameter{"f", {heads, 2, options.max_hops + 1}};
      return VariantParameter{"f", {heads, options.max_hops + 1}};
  }
  fail("unknown variant of attention {}", static_cast<int>(variant));
}

at::Tensor initial_f(int max_hops) {
  return at::arange(max_hops + 1, at::kFloat).mul(-0.01).exp();
}

std::uint64_t layer_walk_seed(const MaskOptions& options, std::int64_t layer) {
  return options.share_walks ? options.seed : derive_seed(options.seed, static_cast<std::uint64_t>(layer));
}

FeatureOptions layer_walks(AttentionVariant variant, const MaskOptions& options, std::int64_t layer) {
  FeatureOptions features;
  features.walks.num_walks = options.num_walks;
  features.walks.p_halt = options.p_halt;
  features.walks.max_hops = options.max_hops;
  features.walks.coupling = options.coupling;
  features.walks.seed = layer_walk_seed(options, layer);
  features.importance_weights = has_importance_weights(variant);
  features.ensembles = mask_ensembles(variant, options);
  return features;
}

bool has_walks(AttentionVariant variant) {
  return has_f(variant) && variant != AttentionVariant::power_series;
}

std::uint64_t layer_feature_seed(std::uint64_t seed, std::int64_t layer) {
  return derive_seed(seed, static_cast<std::uint64_t>(layer));
}

}  // namespace topomask
