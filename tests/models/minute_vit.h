// Vision transformers so small that all their gradients can be compared with finite differences.
#pragma once

#include <ATen/core/grad_mode.h>

#include "masks/gradcheck.h"
#include "topomask/models.h"

namespace topomask::oracle {

// 6 x 6 gray images in 9 patches.
inline VitOptions minute_images(AttentionVariant variant, Pooling pooling = Pooling::mean) {
  VitOptions options;
  options.channels = 1;
  options.height = options.width = 6;
  options.num_classes = 3;
  options.patch = 2;
  options.layers = 1;
  options.embedding = 4;
  options.heads = 2;
  options.mlp = 5;
  options.pooling = pooling;
  options.attention = variant;
  options.mask = {.num_walks = 6, .p_halt = 0.3, .max_hops = 3, .seed = 5};
  options.seed = 7;
  return options;
}

// Gray clips of 4 frames with 4 x 6 pixels, in 2 moments of 6 patches.
inline VitOptions minute_clips(Encoder encoder, AttentionVariant variant, Pooling pooling = Pooling::cls) {
  VitOptions options = minute_images(variant, pooling);
  options.height = 4;
  options.frames = 4;
  options.tubelet = 2;
  options.temporal_layers = 1;
  options.encoder = encoder;
  options.temporal_attention = variant;
  return options;
}

// The head starts at zero, and everything before it would have no gradient.
inline void fill_all(VisionTransformer& model) {
  const at::NoGradGuard no_grad;
  int salt = 0;
  for (const auto& item : model->named_parameters()) {
    const at::Tensor noise = test_values(item.value().sizes(), ++salt);
    if (parameter_kind(item.key(), item.value()) == ParameterKind::mask) {
      item.value().detach().add_(noise, 0.3);
    } else {
      item.value().detach().copy_(noise.mul(0.7));
    }
  }
}

}  // namespace topomask::oracle
