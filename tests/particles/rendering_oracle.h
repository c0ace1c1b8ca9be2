// The renderer written out plainly, in float64 and one ray at a time.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "topomask/particle_rendering.h"

namespace topomask::oracle {

using Vector = std::vector<double>;

inline Vector values_of(const at::Tensor& x) {
  const at::Tensor flat = x.detach().to(at::kDouble).contiguous().view({-1});
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

// The steps of a ray whose cell, or one beside it, holds one of the particles ([N, 3]).
inline std::vector<std::int64_t> steps_near(const Vector& particles, const Vector& origin,
                                            const Vector& direction, const RendererOptions& options) {
  std::vector<std::int64_t> found;
  const double per_cell = 1 / options.cell;
  for (std::int64_t s = 0;; ++s) {
    const double t = options.nearest + (static_cast<double>(s) + .5) * options.spacing;
    if (t > options.farthest || static_cast<std::int64_t>(found.size()) == options.samples) return found;
    bool near = false;
    for (std::size_t i = 0; i < particles.size(); i += 3) {
      bool beside = true;
      for (std::size_t a = 0; a < 3; ++a) {
        beside = beside && std::abs(std::floor(particles[i + a] * per_cell) -
                                    std::floor((origin[a] + t * direction[a]) * per_cell)) <= 1;
      }
      near = near || beside;
    }
    if (near) found.push_back(s);
  }
}

inline Vector linear(const LinearWeights& layer, const Vector& x) {
  const Vector weight = values_of(layer.weight);
  Vector y = values_of(layer.bias);
  for (std::size_t i = 0; i < y.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += weight[i * x.size() + j] * x[j];
  return y;
}

inline Vector relu(Vector x) {
  for (double& value : x) value = std::max(value, 0.0);
  return x;
}

// Red, green, blue, opacity and depth of one ray. particles: [N, 3], features: [N, F].
inline Vector rendered_ray(const Vector& particles, const Vector& features, const Vector& origin,
                           const Vector& direction, const RendererWeights& weights,
                           const RendererOptions& options) {
  const auto width = static_cast<std::size_t>(options.features);
  Vector result(5, 0.0);
  double through = 1;
  for (const std::int64_t s : steps_near(particles, origin, direction, options)) {
    const double t = options.nearest + (static_cast<double>(s) + .5) * options.spacing;
    std::vector<std::pair<double, std::size_t>> nearest;
    for (std::size_t i = 0; i < particles.size() / 3; ++i) {
      double d2 = 0;
      for (std::size_t a = 0; a < 3; ++a)
        d2 += std::pow(particles[3 * i + a] - (origin[a] + t * direction[a]), 2);
      nearest.emplace_back(d2, i);
    }
    std::sort(nearest.begin(), nearest.end());
    nearest.resize(std::min(nearest.size(), static_cast<std::size_t>(options.neighbours)));
    Vector seen;
    for (std::size_t r = 0; r < options.radii.size(); ++r) {
      double mass = 0;
      Vector sum(width, 0.0);
      for (const auto& [d2, i] : nearest) {
        const double w = std::exp(-std::pow((std::sqrt(d2) - options.radii[r]) / options.bandwidths[r], 2));
        mass += w;
        for (std::size_t f = 0; f < width; ++f) sum[f] += w * features[i * width + f];
      }
      for (const double value : sum) seen.push_back(value / (mass + 1e-3));
      seen.push_back(std::log(1 + mass));
    }
    Vector h = relu(linear(weights.trunk2, relu(linear(weights.trunk1, seen))));
    const double sigma = 100 * std::log(1 + std::exp(linear(weights.density, h)[0] - 1));
    h.insert(h.end(), direction.begin(), direction.end());
    const Vector colour = linear(weights.colour2, relu(linear(weights.colour1, h)));
    const double alpha = 1 - std::exp(-sigma * options.spacing);
    for (std::size_t c = 0; c < 3; ++c) result[c] += through * alpha / (1 + std::exp(-colour[c]));
    result[3] += through * alpha;
    result[4] += through * alpha * t;
    through *= 1 - alpha;
  }
  for (std::size_t c = 0; c < 3; ++c) result[c] += through;
  result[4] += through * options.farthest;
  return result;
}

}  // namespace topomask::oracle
