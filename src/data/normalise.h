// Normalisation of images as one multiplication and one subtraction.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace topomask {

// normalised = byte * scale - shift
struct NormalisationConstants {
  at::Tensor scale, shift;  // [C, 1, 1] float32
};
// mean, stddev: [C], of pixel values in [0, 1]
NormalisationConstants normalisation_constants(const std::vector<double>& mean,
                                               const std::vector<double>& stddev, c10::Device device);

// images: [B, C, H, W] or [B, T, C, H, W] uint8 -> float32, on their device; `caller` is named in errors.
at::Tensor normalise_images(const at::Tensor& images, const NormalisationConstants& constants,
                            const char* caller);

}  // namespace topomask
