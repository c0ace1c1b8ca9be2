// Pixels to points and back: the rays of a camera, the points of a depth map, projection. rgbd.h has the
// conventions (paper, appendix C: "unprojected using known camera intrinsics and extrinsics").
//
// L stands for any leading dimensions, such as cameras, or batch and cameras. Everything is computed in the
// type and on the device of the intrinsics, and is differentiable in depth and points.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace topomask {

struct CameraRays {
  at::Tensor origins, directions;  // [L, ..., 3], directions of length 1
  at::Tensor stretch;              // [L, ...]: metres along the ray for each metre of depth along z
};

// Through the middles of all pixels. intrinsics: [L, 4], poses: [L, 4, 4] -> [L, height, width].
CameraRays camera_rays(const at::Tensor& intrinsics, const at::Tensor& poses, std::int64_t height,
                       std::int64_t width);
// Through given pixels: [L, R, 2] columns u and rows v, integer or real -> [L, R].
CameraRays camera_rays(const at::Tensor& intrinsics, const at::Tensor& poses, const at::Tensor& pixels);

// depth: [L, H, W] -> points [L, H, W, 3]. Where the depth is unknown the result means nothing; see
// known_depth.
at::Tensor unproject(const at::Tensor& depth, const at::Tensor& intrinsics, const at::Tensor& poses);

// Where a depth is above 0 and finite, bool.
at::Tensor known_depth(const at::Tensor& depth);

struct ProjectedPoints {
  at::Tensor pixels;  // [L, R, 2]: column and row; pixel (u, v) reaches from -0.5 to 0.5 around it
  at::Tensor depth;   // [L, R] along z; points at or below 0 are not in front of the camera
};
// points: [L, R, 3]. The inverse of unproject for rigid poses.
ProjectedPoints project(const at::Tensor& points, const at::Tensor& intrinsics, const at::Tensor& poses);

}  // namespace topomask
