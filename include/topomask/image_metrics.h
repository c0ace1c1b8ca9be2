// How close a predicted picture is to the true one, a predicted cloud of particles to the true surface, and
// the pose of a predicted body to its true one (paper, section 4 "point clouds": SSIM against the steps of a
// rollout).
//
// Images are [..., H, W, C] with values from 0 to 1, or uint8; both have the same type and device. A
// non-negative or bool weight [..., H, W] weights the pixels, for example to count only moving ones; the
// result is NaN where all weights are 0. Computed in float64, not differentiable.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace topomask {

// Structural similarity (Wang et al. 2004): windows of 11 x 11 with Gaussian weights of sigma 1.5, K1 = .01,
// K2 = .03, range 1, the mean over channels. [..., H-10, W-10]: only whole windows count; entry (i, j)
// belongs to pixel (i + 5, j + 5).
inline constexpr std::int64_t kSsimWindow = 11;
at::Tensor ssim_map(const at::Tensor& a, const at::Tensor& b);

// [...]: the mean of the map, for each image.
at::Tensor ssim(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight = {});

// [...]: 10 log10(1 / mean squared difference) in dB; infinite for equal images.
at::Tensor psnr(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight = {});

// [..., H, W] bool: where a channel differs by more than `threshold`.
at::Tensor moving_pixels(const at::Tensor& now, const at::Tensor& before, double threshold = .05);

// Mean distances to the nearest point of the other cloud, in float64, [B]. NaN where one cloud is empty.
struct ChamferDistance {
  at::Tensor from_a, from_b;
  at::Tensor mean() const;  // of the two
};
// a: [B, N, D] and b: [B, M, D], or without B for one pair (then the results are []). On the device of the
// points.
ChamferDistance chamfer(const at::Tensor& a, const at::Tensor& b);

// How far the predicted motion of a rigid body is from its true one. Both are fitted to the same points by
// least squares (Kabsch 1976): `from` goes to `predicted`, and truly to `truth`, each [P, 3]. Both errors are
// NaN where a coordinate is not finite.
struct RigidError {
  double position;  // distance of the two centroids
  double rotation;  // angle between the two rotations, in degrees; NaN where one of the clouds is on a line
};
RigidError rigid_error(const at::Tensor& from, const at::Tensor& predicted, const at::Tensor& truth);

}  // namespace topomask
