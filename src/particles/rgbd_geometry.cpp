#include "topomask/rgbd_geometry.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "core/check.h"
#include "core/tensors.h"

namespace topomask {

namespace {

void check_cameras(const at::Tensor& intrinsics, const at::Tensor& poses, const char* where) {
  check(intrinsics.defined() && intrinsics.dim() >= 1 && intrinsics.size(-1) == 4 &&
            (intrinsics.scalar_type() == at::kFloat || intrinsics.scalar_type() == at::kDouble),
        "{}: expected intrinsics [..., 4] of float32 or float64, got {}", where,
        intrinsics.defined() ? describe(intrinsics) : "none");
  std::vector<std::int64_t> shape = intrinsics.sizes().vec();
  shape.push_back(4);
  check(poses.defined() && poses.sizes() == at::IntArrayRef(shape) && poses.is_floating_point() &&
            poses.device() == intrinsics.device(),
        "{}: expected poses [{}] of floating point on {}, got {}", where, fmt::join(shape, ", "),
        intrinsics.device().str(), poses.defined() ? describe(poses) : "none");
}

// x has the leading dimensions of the cameras and then `own` more.
void check_leading(const at::Tensor& x, const at::Tensor& intrinsics, std::int64_t own, const char* name,
                   const char* where) {
  const std::int64_t leading = intrinsics.dim() - 1;
  check(x.defined() && x.dim() == leading + own &&
            x.sizes().slice(0, static_cast<std::size_t>(leading)) ==
                intrinsics.sizes().slice(0, static_cast<std::size_t>(leading)) &&
            x.device() == intrinsics.device(),
        "{}: expected {} with the {} leading dimensions of the intrinsics {} and {} more, got {}", where,
        name, leading, describe(intrinsics), own, x.defined() ? describe(x) : "none");
}

// One number of every camera, to be combined with [L, R].
at::Tensor of_camera(const at::Tensor& intrinsics, std::int64_t which) {
  return intrinsics.select(-1, which).unsqueeze(-1);
}

// [L, 1, 3]
at::Tensor centre_of(const at::Tensor& poses) {
  return poses.narrow(-2, 0, 3).select(-1, 3).unsqueeze(-2);
}

// [L, 3, 3], for rows of vectors: row * turn = R vector.
at::Tensor turn_of(const at::Tensor& poses) {
  return poses.narrow(-2, 0, 3).narrow(-1, 0, 3).transpose(-2, -1);
}

// [L, R, 3] in the camera's frame, with z = 1.
at::Tensor slopes(const at::Tensor& intrinsics, const at::Tensor& u, const at::Tensor& v) {
  const at::Tensor x = (u - of_camera(intrinsics, 2)) / of_camera(intrinsics, 0),
                   y = (v - of_camera(intrinsics, 3)) / of_camera(intrinsics, 1);
  return at::stack({x, y, at::ones_like(x)}, -1);
}

// Columns and rows of all pixels, [H W].
std::pair<at::Tensor, at::Tensor> pixel_grid(const at::Tensor& like, std::int64_t height,
                                             std::int64_t width) {
  const at::Tensor rows = at::arange(height, like.options()), columns = at::arange(width, like.options());
  return {columns.repeat({height}), rows.repeat_interleave(width)};
}

CameraRays rays_through(const at::Tensor& intrinsics, const at::Tensor& poses, const at::Tensor& u,
                        const at::Tensor& v) {
  const at::Tensor pose = poses.to(intrinsics.scalar_type());
  const at::Tensor slope = slopes(intrinsics, u, v);  // [L, R, 3]
  const at::Tensor ahead = at::matmul(slope, turn_of(pose));
  CameraRays rays;
  const at::Tensor length = at::norm(ahead, 2, {-1}, /*keepdim=*/true);
  rays.directions = ahead / length;
  rays.stretch = length.squeeze(-1);
  rays.origins = centre_of(pose).expand_as(rays.directions);
  return rays;
}

std::vector<std::int64_t> image_shape(const at::Tensor& flat, std::int64_t height, std::int64_t width,
                                      std::int64_t leading) {
  std::vector<std::int64_t> shape = flat.sizes().vec();
  const auto at_rows = shape.begin() + leading;
  *at_rows = width;
  shape.insert(shape.begin() + leading, height);
  return shape;
}

}  // namespace

CameraRays camera_rays(const at::Tensor& intrinsics, const at::Tensor& poses, std::int64_t height,
                       std::int64_t width) {
  check_cameras(intrinsics, poses, "camera_rays");
  check(height >= 0 && width >= 0, "camera_rays: expected a height and a width of at least 0, got {} and {}",
        height, width);
  const auto [u, v] = pixel_grid(intrinsics, height, width);
  CameraRays rays = rays_through(intrinsics, poses, u, v);
  for (at::Tensor* x : {&rays.origins, &rays.directions, &rays.stretch})
    *x = x->reshape(image_shape(*x, height, width, intrinsics.dim() - 1));
  return rays;
}

CameraRays camera_rays(const at::Tensor& intrinsics, const at::Tensor& poses, const at::Tensor& pixels) {
  check_cameras(intrinsics, poses, "camera_rays");
  check_leading(pixels, intrinsics, 2, "pixels", "camera_rays");
  check(pixels.size(-1) == 2, "camera_rays: expected pixels [..., R, 2], got {}", describe(pixels));
  const at::Tensor real = pixels.to(intrinsics.scalar_type());
  return rays_through(intrinsics, poses, real.select(-1, 0), real.select(-1, 1));
}

at::Tensor unproject(const at::Tensor& depth, const at::Tensor& intrinsics, const at::Tensor& poses) {
  check_cameras(intrinsics, poses, "unproject");
  check_leading(depth, intrinsics, 2, "depth", "unproject");
  const std::int64_t height = depth.size(-2), width = depth.size(-1);
  const auto [u, v] = pixel_grid(intrinsics, height, width);
  const at::Tensor pose = poses.to(intrinsics.scalar_type());
  const at::Tensor z = depth.to(intrinsics.scalar_type()).flatten(-2).unsqueeze(-1);  // [L, H W, 1]
  const at::Tensor points = at::matmul(z * slopes(intrinsics, u, v), turn_of(pose)) + centre_of(pose);
  return points.reshape(image_shape(points, height, width, intrinsics.dim() - 1));
}

at::Tensor known_depth(const at::Tensor& depth) {
  return depth.gt(0).logical_and(depth.isfinite());
}

ProjectedPoints project(const at::Tensor& points, const at::Tensor& intrinsics, const at::Tensor& poses) {
  check_cameras(intrinsics, poses, "project");
  check_leading(points, intrinsics, 2, "points", "project");
  check(points.size(-1) == 3, "project: expected points [..., R, 3], got {}", describe(points));
  const at::Tensor pose = poses.to(intrinsics.scalar_type());
  const at::Tensor own =
      at::matmul(points.to(intrinsics.scalar_type()) - centre_of(pose), turn_of(pose).transpose(-2, -1));
  const at::Tensor z = own.select(-1, 2);
  const at::Tensor u = own.select(-1, 0) / z * of_camera(intrinsics, 0) + of_camera(intrinsics, 2),
                   v = own.select(-1, 1) / z * of_camera(intrinsics, 1) + of_camera(intrinsics, 3);
  return {at::stack({u, v}, -1), z};
}

}  // namespace topomask
