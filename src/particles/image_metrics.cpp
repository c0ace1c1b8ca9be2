#include "topomask/image_metrics.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/check.h"
#include "core/tensors.h"
#include "topomask/neighbours.h"

namespace topomask {

namespace {

constexpr std::int64_t kSsimMargin = kSsimWindow / 2;

at::Tensor image_values(const at::Tensor& image) {
  const at::Tensor values = image.detach().to(at::kDouble);
  return image.scalar_type() == at::kByte ? values / 255.0 : values;
}

void check_images(const at::Tensor& a, const at::Tensor& b, const char* where) {
  check(a.defined() && a.dim() >= 3 && (a.is_floating_point() || a.scalar_type() == at::kByte),
        "{}: expected images [..., H, W, C] of floating point or uint8, got {}", where,
        a.defined() ? describe(a) : "none");
  check(
      b.defined() && b.sizes() == a.sizes() && b.scalar_type() == a.scalar_type() && b.device() == a.device(),
      "{}: expected two images alike, got {} and {}", where, describe(a), b.defined() ? describe(b) : "none");
}

// values: [..., H, W]; weight of the same shape or undefined.
at::Tensor weighted_mean(const at::Tensor& values, const at::Tensor& weight) {
  if (!weight.defined()) return values.mean({-2, -1});
  // Where a weight is 0 the value does not count, whatever it is.
  return at::where(weight.gt(0), values * weight, 0.0).sum({-2, -1}) / weight.sum({-2, -1});
}

at::Tensor checked_weight(const at::Tensor& weight, const at::Tensor& image, const char* where) {
  if (!weight.defined()) return weight;
  check(weight.sizes() == image.sizes().slice(0, static_cast<std::size_t>(image.dim() - 1)) &&
            weight.device() == image.device(),
        "{}: expected a weight for every pixel of {}, got {}", where, describe(image), describe(weight));
  return weight.detach().to(at::kDouble);
}

// Gaussian windows along the dimension, whole ones only.
at::Tensor smoothed(const at::Tensor& x, std::int64_t dim) {
  constexpr double kSigma = 1.5;
  std::array<double, kSsimWindow> window{};
  double sum = 0;
  for (std::int64_t i = 0; i < kSsimWindow; ++i) {
    const auto offset = static_cast<double>(i - kSsimMargin);
    sum += window[static_cast<std::size_t>(i)] = std::exp(-offset * offset / (2 * kSigma * kSigma));
  }
  const std::int64_t size = x.size(dim) - kSsimWindow + 1;
  at::Tensor result;
  for (std::int64_t i = 0; i < kSsimWindow; ++i) {
    const at::Tensor part = x.narrow(dim, i, size) * (window[static_cast<std::size_t>(i)] / sum);
    result = result.defined() ? result.add_(part) : part;
  }
  return result;
}

at::Tensor local_mean(const at::Tensor& image) {
  return smoothed(smoothed(image, -3), -2);
}

// [B]: the mean distance from each point of `from` to the nearest of `to`.
at::Tensor mean_distance(const at::Tensor& from, const at::Tensor& to) {
  const std::int64_t batch = from.size(0), count = from.size(1), others = to.size(1);
  if (count == 0 || others == 0)
    return at::full({batch}, std::numeric_limits<double>::quiet_NaN(), from.options().dtype(at::kDouble));
  NeighbourOptions options;
  options.queries = from.reshape({batch * count, from.size(2)});
  options.ptr = at::arange(batch + 1, at::kLong) * others;
  options.query_ptr = at::arange(batch + 1, at::kLong) * count;
  const Neighbours nearest = knn(to.reshape({batch * others, to.size(2)}), 1, options);
  return nearest.distance2.to(at::kDouble).sqrt().view({batch, count}).mean(1);
}

}  // namespace

at::Tensor ssim_map(const at::Tensor& a, const at::Tensor& b) {
  check_images(a, b, "ssim");
  check(a.size(-3) >= kSsimWindow && a.size(-2) >= kSsimWindow && a.size(-1) >= 1,
        "ssim: expected images of at least {} x {} pixels, got {}", kSsimWindow, kSsimWindow, describe(a));
  const at::NoGradGuard no_grad;
  constexpr double kC1 = .01 * .01, kC2 = .03 * .03;
  const at::Tensor x = image_values(a), y = image_values(b);
  const at::Tensor mean_x = local_mean(x), mean_y = local_mean(y);
  const at::Tensor both = mean_x * mean_y, squares = mean_x.square() + mean_y.square();
  const at::Tensor covariance = local_mean(x * y) - both, variances = local_mean(x * x + y * y) - squares;
  const at::Tensor similarity =
      (2 * both + kC1) * (2 * covariance + kC2) / ((squares + kC1) * (variances + kC2));
  return similarity.mean(-1);
}

at::Tensor ssim(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight) {
  const at::Tensor map = ssim_map(a, b);
  at::Tensor own = checked_weight(weight, a, "ssim");
  if (own.defined()) own = own.narrow(-2, kSsimMargin, map.size(-2)).narrow(-1, kSsimMargin, map.size(-1));
  return weighted_mean(map, own);
}

at::Tensor psnr(const at::Tensor& a, const at::Tensor& b, const at::Tensor& weight) {
  check_images(a, b, "psnr");
  const at::NoGradGuard no_grad;
  const at::Tensor error = (image_values(a) - image_values(b)).square().mean(-1);
  return -10 * weighted_mean(error, checked_weight(weight, a, "psnr")).log10();
}

at::Tensor moving_pixels(const at::Tensor& now, const at::Tensor& before, double threshold) {
  check_images(now, before, "moving_pixels");
  const at::NoGradGuard no_grad;
  return (image_values(now) - image_values(before)).abs().gt(threshold).any(-1);
}

at::Tensor ChamferDistance::mean() const {
  return (from_a + from_b) / 2;
}

ChamferDistance chamfer(const at::Tensor& a, const at::Tensor& b) {
  check(a.defined() && b.defined() && (a.dim() == 2 || a.dim() == 3) && b.dim() == a.dim() &&
            a.size(-1) == b.size(-1) && (a.dim() == 2 || a.size(0) == b.size(0)) && a.is_floating_point() &&
            b.is_floating_point() && a.device() == b.device(),
        "chamfer: expected points [N, D] and [M, D], or [B, N, D] and [B, M, D], got {} and {}",
        a.defined() ? describe(a) : "none", b.defined() ? describe(b) : "none");
  const at::NoGradGuard no_grad;
  const bool one = a.dim() == 2;
  const at::Tensor from = one ? a.detach().unsqueeze(0) : a.detach(),
                   to = one ? b.detach().unsqueeze(0) : b.detach();
  ChamferDistance result{mean_distance(from, to), mean_distance(to, from)};
  if (one) result = {result.from_a.squeeze(0), result.from_b.squeeze(0)};
  return result;
}

namespace {

// points: [P, 3] with the origin as their centroid.
bool on_a_line(const at::Tensor& points) {
  constexpr double kLine = 1e-5;  // rounding of points in float32 is smaller
  const at::Tensor extent = at::linalg_svdvals(points);
  return extent.size(0) < 2 || extent[1].item<double>() <= kLine * extent[0].item<double>();
}

// The rotation R [3, 3] that brings R a closest to b, both [P, 3] with the origin as their centroid.
at::Tensor fitted_rotation(const at::Tensor& a, const at::Tensor& b) {
  const auto [u, sigma, vt] = at::linalg_svd(b.t().mm(a));
  at::Tensor keeps_hands = at::ones({3}, a.options());
  keeps_hands[2] = at::det(u.mm(vt)).sign();
  return (u * keeps_hands).mm(vt);
}

}  // namespace

RigidError rigid_error(const at::Tensor& from, const at::Tensor& predicted, const at::Tensor& truth) {
  for (const at::Tensor& points : {from, predicted, truth})
    check(points.defined() && points.dim() == 2 && points.size(1) == 3 && points.size(0) >= 1 &&
              points.sizes() == from.sizes() && points.is_floating_point(),
          "rigid_error: expected three clouds [P, 3] of the same points, got {}",
          points.defined() ? describe(points) : "none");
  const at::NoGradGuard no_grad;
  const auto centroid = [](const at::Tensor& points) { return points.mean(0, /*keepdim=*/true); };
  const auto exact = [](const at::Tensor& points) { return points.to(at::kCPU, at::kDouble); };
  const at::Tensor a = exact(from), b = exact(predicted), c = exact(truth);
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  // A singular value decomposition takes finite numbers alone.
  if (!at::cat({a, b, c}).isfinite().all().item<bool>()) return {kUndefined, kUndefined};
  RigidError error{(centroid(b) - centroid(c)).norm().item<double>(), kUndefined};
  const at::Tensor local = a - centroid(a);
  if (on_a_line(local) || on_a_line(b - centroid(b)) || on_a_line(c - centroid(c))) return error;
  const at::Tensor between =
      fitted_rotation(local, b - centroid(b)).mm(fitted_rotation(local, c - centroid(c)).t());
  const double cosine = (between.trace().item<double>() - 1) / 2;
  error.rotation = std::acos(std::clamp(cosine, -1., 1.)) * 180 / std::numbers::pi;
  return error;
}

}  // namespace topomask
