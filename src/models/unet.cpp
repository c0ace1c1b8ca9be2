#include "topomask/unet.h"

#include "core/check.h"
#include "topomask/nn.h"

namespace topomask {
namespace {

constexpr std::int64_t kUNetLevels = 4, kNormGroups = 8;
static_assert(kUNetSideFactor == 1 << (kUNetLevels - 1));

// Two convolutions, each with its norm.
class ConvolutionPairImpl : public torch::nn::Module {
 public:
  ConvolutionPairImpl(std::int64_t inputs, std::int64_t outputs) {
    const auto convolution = [&](std::int64_t channels) {
      return torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, outputs, 3).padding(1));
    };
    const auto norm = [&] { return torch::nn::GroupNorm(torch::nn::GroupNormOptions(kNormGroups, outputs)); };
    conv1_ = register_module("conv1", convolution(inputs));
    norm1_ = register_module("norm1", norm());
    conv2_ = register_module("conv2", convolution(outputs));
    norm2_ = register_module("norm2", norm());
  }
  at::Tensor forward(const at::Tensor& x) { return at::silu(norm2_(conv2_(at::silu(norm1_(conv1_(x)))))); }

 private:
  torch::nn::Conv2d conv1_ = nullptr, conv2_ = nullptr;
  torch::nn::GroupNorm norm1_ = nullptr, norm2_ = nullptr;
};
TORCH_MODULE(ConvolutionPair);

}  // namespace

UNetImpl::UNetImpl(std::int64_t width, std::int64_t features, std::uint64_t seed) {
  check(width >= kNormGroups && width % kNormGroups == 0, "U-Net: width must be a multiple of {}, got {}",
        kNormGroups, width);
  down_ = register_module("down", torch::nn::ModuleList());
  narrow_ = register_module("narrow", torch::nn::ModuleList());
  up_ = register_module("up", torch::nn::ModuleList());
  std::int64_t last = 3;
  for (std::int64_t level = 0; level < kUNetLevels; ++level) {
    down_->push_back(ConvolutionPair(last, width << level));
    last = width << level;
  }
  for (std::int64_t level = kUNetLevels - 2; level >= 0; --level) {
    const std::int64_t channels = width << level;
    narrow_->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(2 * channels, channels, 1)));
    up_->push_back(ConvolutionPair(2 * channels, channels));
  }
  out_ = register_module("out", torch::nn::Conv2d(torch::nn::Conv2dOptions(width, features, 1)));
  initialise_fan_in(*this, seed);
}

at::Tensor UNetImpl::forward(const at::Tensor& images) {
  check(images.dim() == 4 && images.size(1) == 3 && images.size(2) % kUNetSideFactor == 0 &&
            images.size(3) % kUNetSideFactor == 0,
        "U-Net: expected images [B, 3, H, W] with sides that are multiples of {}, got [{}]", kUNetSideFactor,
        fmt::join(images.sizes(), ", "));
  at::Tensor x = images - 0.5;
  std::vector<at::Tensor> levels;
  for (std::size_t level = 0; level < down_->size(); ++level) {
    if (level > 0) x = at::max_pool2d(x, {2, 2});
    x = down_->ptr<ConvolutionPairImpl>(level)->forward(x);
    levels.push_back(x);
  }
  for (std::size_t step = 0; step < up_->size(); ++step) {
    x = narrow_->ptr<torch::nn::Conv2dImpl>(step)->forward(x);
    x = at::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)});
    x = up_->ptr<ConvolutionPairImpl>(step)->forward(at::cat({x, levels[up_->size() - 1 - step]}, 1));
  }
  return out_(x);
}

}  // namespace topomask
