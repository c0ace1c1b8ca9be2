#include <ATen/core/grad_mode.h>

#include <cmath>

#include "core/check.h"
#include "models/token_encoder.h"
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

// Central-frame initialisation of tubelets (Arnab 2021, Sec. 3.4): the patch of one frame, the others unseen.
void initialise_tubelets(at::Tensor& matrix, const std::string& name, const VitOptions& options) {
  matrix.zero_();
  const std::int64_t one_frame = matrix.size(1) / options.tubelet;
  at::Tensor central = matrix.narrow(1, options.tubelet / 2 * one_frame, one_frame);
  initialise_matrix(central, name, options);
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
    if (name.ends_with("position_embedding")) {
      fill_normal(tensor, 0, options.initial_positions, options.seed, name);
    } else if (name.ends_with("cls_token") || (name.starts_with("head.") && zero_head)) {
      tensor.zero_();
    } else if (name.ends_with(".bias")) {
      initialise_bias(tensor, name, parameters, options);
    } else if (name == "patch_embedding.projection.weight") {
      initialise_tubelets(tensor, name, options);
    } else {
      initialise_matrix(tensor, name, options);
    }
  }
}

// The stack over moments, whose names begin with its own.
class TemporalModule final : public torch::nn::Module, public TakesParameters {
 public:
  TemporalModule() : torch::nn::Module("temporal") {}
  void take_parameters(const ParameterTensors& tensors, const std::string& prefix) override {
    encoder->take_parameters(tensors, prefix);
  }
  std::shared_ptr<TokenEncoder> encoder;
};

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
  const std::size_t names = images_.class_names.size();
  check(names == 0 || static_cast<std::int64_t>(names) == options_.num_classes,
        "VisionTransformer: expected class_names for {} classes, or none, got {}", options_.num_classes,
        names);
  patch_embedding_ = register_module("patch_embedding", PatchEmbedding(options_.channels, options_.patch,
                                                                       options_.embedding, options_.tubelet));
  const std::vector<TokenStack> stacks = token_stacks(options_);
  encoder_ = std::make_shared<TokenEncoder>(*this, options_, stacks[0]);
  if (stacks.size() > 1) {
    const auto owner = register_module("temporal", std::make_shared<TemporalModule>());
    temporal_ = owner->encoder = std::make_shared<TokenEncoder>(*owner, options_, stacks[1]);
  }
  head_ = register_module("head", torch::nn::Linear(options_.embedding, options_.num_classes));
  initialise(*this, options_);
}

at::Tensor VisionTransformerImpl::forward(const at::Tensor& images) {
  std::vector<std::int64_t> expected = {options_.channels, options_.height, options_.width};
  if (options_.encoder != Encoder::image) expected.insert(expected.begin(), options_.frames);
  check(images.dim() >= 1 && images.sizes().slice(1).equals(expected),
        "VisionTransformer: {} must be [B, {}], got [{}]",
        options_.encoder == Encoder::image ? "images" : "clips", fmt::join(expected, ", "),
        fmt::join(images.sizes(), ", "));
  at::Tensor x = patch_embedding_(images);  // [B, tokens, embedding]
  if (temporal_ == nullptr) return head_(encoder_->forward(x, is_training()));
  const std::int64_t batch = x.size(0), moments = options_.moments();
  x = encoder_->forward(x.view({batch * moments, options_.num_patches(), options_.embedding}), is_training());
  return head_(temporal_->forward(x.view({batch, moments, options_.embedding}), is_training()));
}

void VisionTransformerImpl::take_parameters(const ParameterTensors& tensors, const std::string& prefix) {
  encoder_->take_parameters(tensors, prefix);
}

at::Tensor VisionTransformerImpl::normalise(const at::Tensor& images) const {
  return normalise_images(images.to(head_->weight.device()), images_.mean, images_.stddev);
}

std::shared_ptr<MaskModule> VisionTransformerImpl::mask(std::int64_t layer) const {
  return layer < options_.layers ? encoder_->mask(layer) : temporal_->mask(layer - options_.layers);
}

std::int64_t VisionTransformerImpl::num_parameters() const {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : parameters()) count += tensor.numel();
  return count;
}

}  // namespace topomask
