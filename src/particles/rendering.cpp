#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/tensors.h"
#include "particles/gpu.h"
#include "particles/ray_samples.h"
#include "particles/ring_features.h"
#include "topomask/neighbours.h"
#include "topomask/particle_rendering.h"

namespace topomask {

namespace {

constexpr double kDensityScale = 100;                        // opaque within a centimetre or two
constexpr std::int64_t kRaysAtOnce = std::int64_t{1} << 15;  // without gradients, over all clouds

void check_cloud(const at::Tensor& x, const char* name, const at::Tensor& like, std::int64_t rows,
                 std::int64_t columns) {
  check(x.defined() && x.dim() == 3 && x.is_floating_point() && x.size(0) == like.size(0) &&
            (rows < 0 || x.size(1) == rows) && x.size(2) == columns && x.device() == like.device(),
        "render_particles: expected {} [{}, {}, {}] of floating point on {}, got {}", name, like.size(0),
        rows < 0 ? "R" : std::to_string(rows), columns, like.device().str(), describe(x));
}

// x: [B, rows, 3] float64 on the CPU.
void check_numbers(const at::Tensor& x, const char* name) {
  const double* value = x.const_data_ptr<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (!std::isfinite(value[i]))
      throw NotFinite(fmt::format("render_particles: expected finite {}, got {} at [{}, {}, {}]", name,
                                  value[i], i / (x.size(1) * 3), i / 3 % x.size(1), i % 3));
  }
}

// x: as above, rounded to `type` before.
void check_directions(const at::Tensor& x, at::ScalarType type) {
  const double tolerance = type == at::kBFloat16 ? 1e-2 : 1e-3;
  const double* d = x.const_data_ptr<double>();
  for (std::int64_t i = 0; i < x.numel() / 3; ++i, d += 3) {
    const double length = std::sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
    check(std::abs(length - 1) <= tolerance,
          "render_particles: expected directions of length 1, got length {} for ray {} of cloud {}", length,
          i % x.size(1), i / x.size(1));
  }
}

void check_weights(const RendererWeights& weights, const RendererOptions& options, const at::Tensor& like) {
  const std::int64_t hidden = options.hidden;
  const auto one = [&](const LinearWeights& layer, const char* name, std::int64_t in, std::int64_t out) {
    const at::Tensor &w = layer.weight, &b = layer.bias;
    check(w.defined() && b.defined() && w.sizes() == at::IntArrayRef{out, in} &&
              b.sizes() == at::IntArrayRef{out} && w.device() == like.device() &&
              b.device() == like.device() && w.is_floating_point() &&
              w.scalar_type() == weights.trunk1.weight.scalar_type() && b.scalar_type() == w.scalar_type(),
          "render_particles: expected {} with weight [{}, {}] and bias [{}] on {}, all of one floating-point "
          "type, got {} and {}",
          name, out, in, out, like.device().str(), describe(w), describe(b));
  };
  one(weights.trunk1, "trunk1", options.inputs(), hidden);
  one(weights.trunk2, "trunk2", hidden, hidden);
  one(weights.density, "density", hidden, 1);
  one(weights.colour1, "colour1", hidden + 3, hidden);
  one(weights.colour2, "colour2", hidden, 3);
}

at::Tensor linear(const at::Tensor& x, const LinearWeights& layer) {
  return at::linear(x, layer.weight, layer.bias);
}

// Front to back on white. density [P], colour [P, 3] of the samples. The padded tensors [B R, samples] hold
// one number each, so they stay small beside the activations.
Rendered composited(const at::Tensor& density, const at::Tensor& colour, const RaySamples& samples,
                    std::int64_t clouds, std::int64_t rays, const RendererOptions& options) {
  const std::int64_t slots = clouds * rays * options.samples;
  const auto padded = [&](const at::Tensor& x) {
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape[0] = slots;
    at::Tensor y = at::zeros(shape, x.options()).index_copy(0, samples.slot, x);
    shape.insert(shape.begin(), clouds * rays);
    shape[1] = options.samples;
    return y.view(shape);
  };
  const at::Tensor depth = padded(density * options.spacing);  // optical depth of a sample, [B R, S]
  const at::Tensor behind = depth.cumsum(1);
  const at::Tensor weight = at::exp(depth - behind) * -at::expm1(-depth);
  const at::Tensor total = depth.sum(1), through = at::exp(-total);
  Rendered result;
  result.colour =
      ((weight.unsqueeze(-1) * padded(colour)).sum(1) + through.unsqueeze(-1)).view({clouds, rays, 3});
  result.opacity = -at::expm1(-total).view({clouds, rays});
  result.depth =
      ((weight * padded(samples.distance.to(density.scalar_type()))).sum(1) + through * options.farthest)
          .view({clouds, rays});
  return result;
}

// Density and colour of samples, before softplus and sigmoid.
struct Shades {
  at::Tensor density, colour;  // [P], [P, 3]
};

Shades shades_of(const at::Tensor& seen, const at::Tensor& directions, const RaySamples& samples,
                 const RendererWeights& weights, const RendererOptions& options) {
  const at::Tensor h =
      linear(linear(seen.to(weights.trunk1.weight.scalar_type()), weights.trunk1).relu(), weights.trunk2)
          .relu();
  const at::Tensor density = linear(h, weights.density).squeeze(-1), rows = directions.reshape({-1, 3});
  if (!samples.padded()) {
    const at::Tensor view = rows.index_select(0, samples.ray).to(h.scalar_type());
    return {density, linear(linear(at::cat({h, view}, -1), weights.colour1).relu(), weights.colour2)};
  }
  // The part of the first layer that sees the direction is the same all along a ray.
  const at::Tensor weight = weights.colour1.weight;
  const at::Tensor of_ray =
      at::linear(rows.to(weight.scalar_type()), weight.narrow(1, options.hidden, 3), weights.colour1.bias);
  const at::Tensor of_samples = at::linear(h, weight.narrow(1, 0, options.hidden));
  const at::Tensor hidden =
      (of_samples.view({rows.size(0), options.samples, options.hidden}) + of_ray.unsqueeze(1))
          .relu()
          .flatten(0, 1);
  return {density, linear(hidden, weights.colour2)};
}

// All tensors are checked; positions, features in the type of the sums, rays in float64.
Rendered render_rays(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& origins,
                     const at::Tensor& directions, const RendererWeights& weights,
                     const RendererOptions& options) {
  const std::int64_t clouds = positions.size(0), particles = positions.size(1), rays = origins.size(1);
  RaySamples samples;
  at::Tensor query, index;
  {
    const at::NoGradGuard no_grad;
    samples = ray_samples(positions.detach().contiguous(), origins, directions, options);
    query = samples.query.to(positions.scalar_type());
    NeighbourOptions search;
    search.queries = query;
    search.ptr = at::arange(clouds + 1, at::kLong) * particles;
    search.query_ptr = samples.ptr;
    index = knn(positions.detach().reshape({-1, 3}), options.neighbours, search).index;
  }
  const at::Tensor seen = ring_features(positions.reshape({-1, 3}), features.reshape({-1, options.features}),
                                        query, index, options.radii, options.bandwidths);
  const Shades shades = shades_of(seen, directions, samples, weights, options);
  if (samples.padded())
    return composited_cuda(shades.density.view({clouds, rays, options.samples}),
                           shades.colour.view({clouds, rays, options.samples, 3}), samples, kDensityScale,
                           options);
  // Autocast may have made these 16 bits wide; the sums along a ray need more.
  const at::ScalarType wide = positions.scalar_type();
  return composited(kDensityScale * at::softplus(shades.density.to(wide) - 1),
                    shades.colour.to(wide).sigmoid(), samples, clouds, rays, options);
}

}  // namespace

std::int64_t RendererOptions::steps() const {
  return static_cast<std::int64_t>(std::floor((farthest - nearest) / spacing + 1e-6));
}

void check_renderer(const RendererOptions& options) {
  const auto positive = [](const char* name, std::int64_t value, std::int64_t most) {
    check(value >= 1 && value <= most, "renderer: {} must be 1 to {}, got {}", name, most, value);
  };
  positive("features", options.features, 4096);
  positive("neighbours", options.neighbours, kMaxGpuNeighbours);
  positive("hidden", options.hidden, 65536);
  positive("samples", options.samples, 65536);
  check(options.rings() >= 1 && options.rings() <= kMaxRings &&
            options.bandwidths.size() == options.radii.size(),
        "renderer: expected 1 to {} radii and as many bandwidths, got {} and {}", kMaxRings,
        options.radii.size(), options.bandwidths.size());
  for (std::size_t r = 0; r < options.radii.size(); ++r) {
    check(std::isfinite(options.radii[r]) && options.radii[r] >= 0,
          "renderer: radii must be at least 0 and finite, got {}", options.radii[r]);
    check(std::isfinite(options.bandwidths[r]) && options.bandwidths[r] > 0,
          "renderer: bandwidths must be above 0 and finite, got {}", options.bandwidths[r]);
  }
  check(std::isfinite(options.nearest) && std::isfinite(options.farthest) && options.nearest >= 0 &&
            options.farthest > options.nearest,
        "renderer: expected 0 <= nearest < farthest, got {} and {}", options.nearest, options.farthest);
  check(std::isfinite(options.spacing) && options.spacing > 0 && std::isfinite(options.cell) &&
            options.cell > 0,
        "renderer: spacing and cell must be above 0 and finite, got {} and {}", options.spacing,
        options.cell);
  check((options.farthest - options.nearest) / options.spacing <= 1e6 && options.steps() >= 1,
        "renderer: expected 1 to 1000000 steps of {} m from {} to {} m", options.spacing, options.nearest,
        options.farthest);
}

Rendered render_particles(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& origins,
                          const at::Tensor& directions, const RendererWeights& weights,
                          const RendererOptions& options) {
  check_renderer(options);
  check(
      positions.defined() && positions.dim() == 3 && positions.size(2) == 3 && positions.is_floating_point(),
      "render_particles: expected positions [B, N, 3] of floating point, got {}",
      positions.defined() ? describe(positions) : "none");
  check_cloud(features, "features", positions, positions.size(1), options.features);
  check_cloud(origins, "origins", positions, -1, 3);
  check_cloud(directions, "directions", positions, origins.size(1), 3);
  check_weights(weights, options, positions);
  const at::ScalarType type = weights.trunk1.weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor x = positions.to(type), f = features.to(type);
  const at::Tensor from = origins.detach().to(at::kDouble).contiguous(),
                   along = directions.detach().to(at::kDouble).contiguous();
  if (positions.is_cpu()) {
    check_numbers(positions.detach().to(at::kDouble).contiguous(), "positions");
    check_numbers(from, "origins");
    check_numbers(along, "directions");
    check_directions(along, directions.scalar_type());
  }
  const std::int64_t clouds = from.size(0), rays = from.size(1);
  if (at::GradMode::is_enabled() || clouds * rays <= kRaysAtOnce) {
    return render_rays(x, f, from, along, weights, options);
  }
  const std::int64_t part = std::max<std::int64_t>(1, kRaysAtOnce / clouds);
  std::vector<at::Tensor> colour, opacity, depth;
  for (std::int64_t begin = 0; begin < rays; begin += part) {
    const std::int64_t size = std::min(part, rays - begin);
    const Rendered own = render_rays(x, f, from.narrow(1, begin, size).contiguous(),
                                     along.narrow(1, begin, size).contiguous(), weights, options);
    colour.push_back(own.colour);
    opacity.push_back(own.opacity);
    depth.push_back(own.depth);
  }
  return {at::cat(colour, 1), at::cat(opacity, 1), at::cat(depth, 1)};
}

}  // namespace topomask
