#include "models/token_encoder.h"

#include "nn/batch_dropout.h"
#include "nn/rules.h"

namespace topomask {

TokenEncoder::TokenEncoder(torch::nn::Module& owner, const VitOptions& options, const TokenStack& stack)
    : dropout_(options.dropout) {
  const std::int64_t num_global = options.pooling == Pooling::cls ? 1 : 0;
  position_embedding_ = owner.register_parameter(
      "position_embedding", at::zeros({1, num_global + stack.num_tokens(), options.embedding}));
  if (num_global > 0)
    cls_token_ = owner.register_parameter("cls_token", at::zeros({1, 1, options.embedding}));
  blocks_ = owner.register_module("blocks", torch::nn::ModuleList());
  MaskSite site = {.grid = stack.grid, .heads = options.heads};
  std::vector<std::shared_ptr<MaskModule>> masks;
  for (std::int64_t layer = 0; layer < stack.layers; ++layer) {
    site.layer = stack.first_layer + layer;
    const AttentionVariant variant = options.attention_of(site.layer);
    const MaskModule* const earlier = masks.empty() ? nullptr : masks.front().get();
    masks.push_back(make_mask_module(variant, options.mask, site, earlier));
    const FeatureMap random_features = {.kind = FeatureMapKind::favor,
                                        .num_features = options.random_features,
                                        .seed = layer_feature_seed(options.seed, site.layer)};
    SelfAttention attention(options.embedding, options.heads, variant, masks.back(), num_global,
                            random_features);
    blocks_->push_back(TransformerBlock(options.embedding, options.mlp, options.dropout, attention));
  }
  mask_bank_ = MaskBank(std::move(masks));
  norm_ =
      owner.register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.embedding})));
}

at::Tensor TokenEncoder::forward(const at::Tensor& tokens, bool training) {
  at::Tensor x = tokens;
  if (cls_token_.defined()) x = at::cat({cls_token_.expand({x.size(0), -1, -1}).to(x.dtype()), x}, 1);
  ResidualStream stream{batch_dropout(x + position_embedding_, dropout_, training)};
  const std::vector<MaskPtr> masks = mask_bank_.masks();
  for (std::size_t layer = 0; layer < masks.size(); ++layer)
    blocks_->ptr<TransformerBlockImpl>(layer)->pass(stream, masks[layer]);
  x = stream.normalise(norm_);
  return cls_token_.defined() ? x.select(1, 0) : x.mean(1);
}

void TokenEncoder::take_parameters(const ParameterTensors& tensors, const std::string& prefix) {
  position_embedding_ = tensors.at(prefix + "position_embedding");
  if (cls_token_.defined()) cls_token_ = tensors.at(prefix + "cls_token");
}

std::shared_ptr<MaskModule> TokenEncoder::mask(std::int64_t layer) const {
  return blocks_->ptr<TransformerBlockImpl>(static_cast<std::size_t>(layer))->attention()->mask();
}

}  // namespace topomask
