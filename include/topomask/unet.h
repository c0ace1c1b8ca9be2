// The U-Net that turns the pixels of an image into features of particles (Ronneberger et al. 2015; paper,
// App. C.3).
#pragma once

#include <torch/nn.h>

#include <cstdint>

namespace topomask {

inline constexpr std::int64_t kUNetSideFactor = 8;

// Images [B, 3, H, W] with values in [0, 1] -> [B, features, H, W]. Four levels of width, 2 width, 4 width
// and 8 width channels: two 3x3 convolutions with GroupNorm(8) and SiLU each, maxima over 2x2 pixels
// downwards, nearest pixels and a 1x1 convolution upwards. Sides must be multiples of kUNetSideFactor, the
// width of 8.
class UNetImpl : public torch::nn::Module {
 public:
  UNetImpl(std::int64_t width, std::int64_t features, std::uint64_t seed);
  at::Tensor forward(const at::Tensor& images);

 private:
  torch::nn::ModuleList down_ = nullptr, narrow_ = nullptr, up_ = nullptr;
  torch::nn::Conv2d out_ = nullptr;
};
TORCH_MODULE(UNet);

}  // namespace topomask
