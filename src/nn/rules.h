// Rules by which options become numbers of a layer. The description of a model for other languages states the
// results.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topomask/features.h"
#include "topomask/model_options.h"

namespace topomask {

// The epsilon of linear attention with heads of this many channels. phi(x) = ReLU(x d^-1/4) + 1e-3; a common
// factor of all features cancels in the normalised average, so epsilon takes it and q and k stay as they are.
double feature_epsilon(std::int64_t channels);

bool has_importance_weights(AttentionVariant variant);
Ensembles mask_ensembles(AttentionVariant variant, const MaskOptions& options);
bool has_f(AttentionVariant variant);                // a mask of walks or of powers of W
bool has_random_features(AttentionVariant variant);  // FAVOR+
// The one parameter of a variant's mask.
struct VariantParameter {
  std::string name;
  std::vector<std::int64_t> sizes;  // [heads, ...]
};
// `grid`: extents of the grid of tokens that the mask is on.
std::optional<VariantParameter> mask_parameter(AttentionVariant variant, const MaskOptions& options,
                                               std::int64_t heads, const std::vector<std::int64_t>& grid);
// f of one head at the start: [max_hops + 1] float32, e^(-0.01 k), which hardly decays.
at::Tensor initial_f(int max_hops);
// Of the walks of a layer. With walks of their own, its heads derive theirs from it (GrfMask::per_head).
std::uint64_t layer_walk_seed(const MaskOptions& options, std::int64_t layer);
// The walks of a layer, of a variant that has some.
FeatureOptions layer_walks(AttentionVariant variant, const MaskOptions& options, std::int64_t layer);
bool has_walks(AttentionVariant variant);
// Of the projections of a performer's layer; `seed` is that of the weights.
std::uint64_t layer_feature_seed(std::uint64_t seed, std::int64_t layer);

}  // namespace topomask
