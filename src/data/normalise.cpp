#include "data/normalise.h"

#include <ATen/ops/tensor.h>

#include "core/check.h"
#include "core/tensors.h"
#include "topomask/data.h"

namespace topomask {

NormalisationConstants normalisation_constants(const std::vector<double>& mean,
                                               const std::vector<double>& stddev, c10::Device device) {
  check(!mean.empty() && mean.size() == stddev.size(),
        "normalisation: expected one mean and one deviation per channel, got {} and {}", mean.size(),
        stddev.size());
  std::vector<double> scale, shift;
  for (std::size_t c = 0; c < mean.size(); ++c) {
    scale.push_back(1 / (255 * stddev[c]));
    shift.push_back(mean[c] / stddev[c]);
  }
  const auto per_channel = [&](const std::vector<double>& values) {
    return at::tensor(values, at::kDouble).to(at::kFloat).view({-1, 1, 1}).to(device);
  };
  return {per_channel(scale), per_channel(shift)};
}

at::Tensor normalise_images(const at::Tensor& images, const NormalisationConstants& constants,
                            const char* caller) {
  check((images.dim() == 4 || images.dim() == 5) && images.scalar_type() == at::kByte &&
            images.size(-3) == constants.scale.size(0),
        "{}: expected images uint8 [B, {}, H, W], got {}", caller, constants.scale.size(0), describe(images));
  const c10::Device device = images.device();
  return images.to(at::kFloat).mul_(constants.scale.to(device)).sub_(constants.shift.to(device));
}

at::Tensor normalise_images(const at::Tensor& images, const std::vector<double>& mean,
                            const std::vector<double>& stddev) {
  return normalise_images(images, normalisation_constants(mean, stddev, images.device()), "normalise_images");
}

}  // namespace topomask
