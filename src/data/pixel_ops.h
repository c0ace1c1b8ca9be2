// Batched operations on bytes that augmentation is made of. Every image of a batch goes through the same few
// tensor operations with parameters of its own, so that a GPU sees a handful of launches rather than one per
// image.
#pragma once

#include <ATen/core/Tensor.h>

#include "data/augment_table.h"

namespace topomask {

// images[b, c, y, x] becomes images[b, c, y', x'] with (x', y') = warp[b] (x, y) rounded to the nearest
// pixel, or fill[c] where that lies outside.
at::Tensor warp_nearest(const at::Tensor& images,  // [B, C, H, W] uint8
                        const at::Tensor& warp,    // [B, 6] float32
                        const at::Tensor& fill);   // [C, 1, 1] uint8

// Boxes (left, top, width, height) enlarged to the size of the image, bilinear.
at::Tensor enlarge_boxes(const at::Tensor& images,
                         const at::Tensor& box);  // [B, C, H, W] uint8, [B, 4] float32

// Which pixels lie in a box (first and one past the last x, the same of y): [B, 1, H, W] bool.
at::Tensor inside_box(const at::Tensor& box, std::int64_t height, std::int64_t width);  // [B, 4] float32

// One operation of RandAugment for each image.
at::Tensor apply_layer(at::Tensor images,            // [B, C, H, W] uint8
                       const at::Tensor& parameter,  // [B, kLayerSize] float32
                       const AugmentTable::Layer& layer, const at::Tensor& fill);

}  // namespace topomask
