#include <ATen/core/grad_mode.h>

#include <cmath>

#include "core/check.h"
#include "nn/mask_bank.h"
#include "topomask/data.h"
#include "topomask/models.h"

namespace topomask {

namespace {

using Parameters = torch::OrderedDict<std::string, at::Tensor>;

void initialise_bias(at::Tensor& bias, const std::string& name, const Parameters& all,
                     const VitOptions& options) {
  bias.zero_();
  if (options.initial_weights == InitialWeights::fan_in) {
    const std::string matrix = name.substr(0, name.rfind('.')) + ".weight";
    const auto inputs = static_cast<double>(all[matrix].size(1));
    fill_uniform(bias, 1 / std::sqrt(inputs), options.seed, name);
  } else if (options.initial_weights == InitialWeights::xavier && name.find(".mlp.") != std::string::npos) {
    fill_normal(bias, 0, 1e-6, options.seed, name);
  }
}

void initialise_matrix(at::Tensor& matrix, const std::string& name, const VitOptions& options) {
  const auto inputs = static_cast<double>(matrix.size(1));
  switch (options.initial_weights) {
    case InitialWeights::xavier: {
      // q, k and v share one matrix but are three maps.
      const std::int64_t outputs = matrix.size(0) / (name.ends_with(".qkv.weight") ? 3 : 1);
      fill_uniform(matrix, std::sqrt(6 / (inputs + static_cast<double>(outputs))), options.seed, name);
      break;
    }
    case InitialWeights::fan_in:
      fill_uniform(matrix, 1 / std::sqrt(inputs), options.seed, name);
      break;
    case InitialWeights::normal:
      fill_normal(matrix, 0, 0.02, options.seed, name);
      break;
  }
}

void initialise(const torch::nn::Module& model, const VitOptions& options) {
  const at::NoGradGuard no_grad;
  const bool zero_head = options.initial_weights == InitialWeights::xavier;
  const Parameters parameters = model.named_parameters();
  for (const auto& item : parameters) {
    const std::string& name = item.key();
    at::Tensor tensor = item.value();
    if (parameter_kind(name, tensor) == ParameterKind::mask || name.find("norm") != std::string::npos)
      continue;  // these know their own beginnings
    if (name == "position_embedding") {
      fill_normal(tensor, 0, options.initial_positions, options.seed, name);
    } else if (name == "cls_token" || (name.starts_with("head.") && zero_head)) {
      tensor.zero_();
    } else if (name.ends_with(".bias")) {
      initialise_bias(tensor, name, parameters, options);
    } else {
      initialise_matrix(tensor, name, options);
    }
  }
}

}  // namespace

VisionTransformerImpl::VisionTransformerImpl(const VitOptions& options, ImageFormat images)
    : options_(options), images_(std::move(images)) {
  check_vit_options(options_);
  const auto channels = static_cast<std::size_t>(options_.channels);
  if (images_.mean.empty()) images_.mean.assign(channels, 0);
  if (images_.stddev.empty()) images_.stddev.assign(channels, 1);
  check(images_.mean.size() == channels && images_.stddev.size() == channels,
        "VisionTransformer: expected mean and stddev of {} channels, got {} and {}", channels,
        images_.mean.size(), images_.stddev.size());
  const std::int64_t num_global = options_.pooling == Pooling::cls ? 1 : 0;
  patch_embedding_ = register_module("patch_embedding",
                                     PatchEmbedding(options_.channels, options_.patch, options_.embedding));
  position_embedding_ = register_parameter(
      "position_embedding", at::zeros({1, num_global + options_.num_patches(), options_.embedding}));
  if (num_global > 0) cls_token_ = register_parameter("cls_token", at::zeros({1, 1, options_.embedding}));
  blocks_ = register_module("blocks", torch::nn::ModuleList());
  MaskSite site = {.grid = {options_.grid_height(), options_.grid_width()}, .heads = options_.heads};
  std::vector<std::shared_ptr<MaskModule>> masks;
  for (site.layer = 0; site.layer < options_.layers; ++site.layer) {
    masks.push_back(make_mask_module(options_.attention, options_.mask, site));
    SelfAttention attention(options_.embedding, options_.heads, options_.attention, masks.back(), num_global);
    blocks_->push_back(TransformerBlock(options_.embedding, options_.mlp, options_.dropout, attention));
  }
  mask_bank_ = std::make_shared<MaskBank>(std::move(masks));
  norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options_.embedding})));
  head_ = register_module("head", torch::nn::Linear(options_.embedding, options_.num_classes));
  initialise(*this, options_);
}

at::Tensor VisionTransformerImpl::forward(const at::Tensor& images) {
  check(images.dim() == 4 && images.size(1) == options_.channels && images.size(2) == options_.height &&
            images.size(3) == options_.width,
        "VisionTransformer: images must be [B, {}, {}, {}], got [{}]", options_.channels, options_.height,
        options_.width, fmt::join(images.sizes(), ", "));
  at::Tensor x = patch_embedding_(images);
  if (cls_token_.defined()) x = at::cat({cls_token_.expand({x.size(0), -1, -1}).to(x.dtype()), x}, 1);
  ResidualStream stream{at::dropout(x + position_embedding_, options_.dropout, is_training())};
  const std::vector<MaskPtr> masks = mask_bank_->masks();
  for (std::size_t layer = 0; layer < masks.size(); ++layer)
    blocks_->ptr<TransformerBlockImpl>(layer)->pass(stream, masks[layer]);
  x = stream.normalise(norm_);
  return head_(cls_token_.defined() ? x.select(1, 0) : x.mean(1));
}

at::Tensor VisionTransformerImpl::normalise(const at::Tensor& images) const {
  return normalise_images(images.to(position_embedding_.device()), images_.mean, images_.stddev);
}

std::shared_ptr<MaskModule> VisionTransformerImpl::mask(std::int64_t layer) const {
  return blocks_->ptr<TransformerBlockImpl>(static_cast<std::size_t>(layer))->attention()->mask();
}

std::int64_t VisionTransformerImpl::num_parameters() const {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : parameters()) count += tensor.numel();
  return count;
}

}  // namespace topomask
