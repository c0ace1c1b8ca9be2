// Periodic boxes, as in graph/cpu/knn.h; fmod and remainder are exact on both.
#pragma once

namespace topomask::cuda {

// Seldom needed, and long: kept out of the loops that call it.
static __device__ __noinline__ double far_image(double magnitude, double length) {
  return fabs(remainder(magnitude, length));
}

__device__ inline double nearest_image(double difference, double length) {
  const double magnitude = fabs(difference);
  if (length == 0 || magnitude <= 0.5 * length) return magnitude;
  if (magnitude <= 1.5 * length) return fabs(magnitude - length);
  return far_image(magnitude, length);
}

__device__ inline double wrapped(double x, double length) {
  if (length == 0 || (x >= 0 && x <= length)) return x;
  const double rest = fmod(x, length);
  return rest < 0 ? rest + length : rest;
}

constexpr double kWrapError = 0x1p-49;

}  // namespace topomask::cuda
