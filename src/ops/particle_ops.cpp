// The renderer of particles as an operator.
#include <ATen/ops/cat.h>
#include <torch/library.h>

#include <algorithm>

#include "ops/arguments.h"
#include "ops/library_call.h"
#include "topomask/particle_rendering.h"

namespace topomask::ops {
namespace {

// Weight and bias of each layer, in the order of RendererWeights.
constexpr std::size_t kRendererTensors = 10;

struct RendererCall {
  std::int64_t neighbours = 0, samples = 0;
  at::ArrayRef<double> radii, bandwidths;
  double nearest = 0, farthest = 0, spacing = 0, cell = 0;

  // What else there is to know follows from the first weight; the library checks that all shapes fit.
  TensorFunction run() const {
    RendererOptions options;
    options.neighbours = neighbours;
    options.samples = samples;
    options.radii = radii.vec();
    options.bandwidths = bandwidths.vec();
    options.nearest = nearest;
    options.farthest = farthest;
    options.spacing = spacing;
    options.cell = cell;
    return [options](const Tensors& x) mutable {
      check(x.size() == 4 + kRendererTensors, "render_particles: expected {} weights, got {}",
            kRendererTensors, x.size() - 4);
      check_place("render_particles", "positions", x[0]);
      const std::int64_t rings = std::max<std::int64_t>(options.rings(), 1);
      if (x[4].dim() == 2) {
        options.features = x[4].size(1) / rings - 1;
        options.hidden = x[4].size(0);
      }
      const RendererWeights weights = {
          {x[4], x[5]}, {x[6], x[7]}, {x[8], x[9]}, {x[10], x[11]}, {x[12], x[13]}};
      const Rendered rendered = render_particles(x[0], x[1], x[2], x[3], weights, options);
      return at::cat({rendered.colour, rendered.opacity.unsqueeze(-1), rendered.depth.unsqueeze(-1)}, -1);
    };
  }
};

Tensors renderer_inputs(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& origins,
                        const at::Tensor& directions, at::TensorList weights) {
  Tensors result = {positions, features, origins, directions};
  result.insert(result.end(), weights.begin(), weights.end());
  return result;
}

at::Tensor render_particles_op(const at::Tensor& positions, const at::Tensor& features,
                               const at::Tensor& origins, const at::Tensor& directions,
                               at::TensorList weights, std::int64_t neighbours, std::int64_t samples,
                               at::ArrayRef<double> radii, at::ArrayRef<double> bandwidths, double nearest,
                               double farthest, double spacing, double cell) {
  const RendererCall call{neighbours, samples, radii, bandwidths, nearest, farthest, spacing, cell};
  return without_graph(call.run(), renderer_inputs(positions, features, origins, directions, weights));
}

Tensors render_particles_backward_op(const at::Tensor& grad, const at::Tensor& positions,
                                     const at::Tensor& features, const at::Tensor& origins,
                                     const at::Tensor& directions, at::TensorList weights,
                                     std::int64_t neighbours, std::int64_t samples,
                                     at::ArrayRef<double> radii, at::ArrayRef<double> bandwidths,
                                     double nearest, double farthest, double spacing, double cell,
                                     at::IntArrayRef needs) {
  const RendererCall call{neighbours, samples, radii, bandwidths, nearest, farthest, spacing, cell};
  return gradients_of(call.run(), renderer_inputs(positions, features, origins, directions, weights), grad,
                      wanted(needs));
}

at::Tensor render_particles_autograd(const at::Tensor& positions, const at::Tensor& features,
                                     const at::Tensor& origins, const at::Tensor& directions,
                                     at::TensorList weights, std::int64_t neighbours, std::int64_t samples,
                                     at::ArrayRef<double> radii, at::ArrayRef<double> bandwidths,
                                     double nearest, double farthest, double spacing, double cell) {
  static const auto forward = find_operator<decltype(render_particles_op)>("topomask::render_particles");
  static const auto backward =
      find_operator<decltype(render_particles_backward_op)>("topomask::render_particles_backward");
  const RendererCall settings{neighbours, samples, radii, bandwidths, nearest, farthest, spacing, cell};
  LibraryCall call;
  call.run = settings.run();
  call.forward_operator = [=, r = radii.vec(), b = bandwidths.vec()](const Tensors& in) {
    return forward.call(in[0], in[1], in[2], in[3], at::TensorList(in).slice(4), neighbours, samples, r, b,
                        nearest, farthest, spacing, cell);
  };
  call.backward_operator = [=, r = radii.vec(), b = bandwidths.vec()](
                               const at::Tensor& grad, const Tensors& in, const std::vector<bool>& needs) {
    const std::vector<std::int64_t> flags(needs.begin(), needs.end());
    return backward.call(grad, in[0], in[1], in[2], in[3], at::TensorList(in).slice(4), neighbours, samples,
                         r, b, nearest, farthest, spacing, cell, flags);
  };
  return differentiable(renderer_inputs(positions, features, origins, directions, weights), call);
}

at::Tensor render_particles_shape(const at::Tensor& positions, const at::Tensor&, const at::Tensor& origins,
                                  const at::Tensor&, at::TensorList weights, std::int64_t, std::int64_t,
                                  at::ArrayRef<double>, at::ArrayRef<double>, double, double, double,
                                  double) {
  const bool wide = !weights.empty() && weights[0].scalar_type() == at::kDouble;
  return shape_only({origins.sym_size(0), origins.sym_size(1), 5}, positions,
                    wide ? at::kDouble : at::kFloat);
}

Tensors render_particles_backward_shapes(const at::Tensor&, const at::Tensor& positions,
                                         const at::Tensor& features, const at::Tensor& origins,
                                         const at::Tensor& directions, at::TensorList weights, std::int64_t,
                                         std::int64_t, at::ArrayRef<double>, at::ArrayRef<double>, double,
                                         double, double, double, at::IntArrayRef needs) {
  return gradient_shapes(renderer_inputs(positions, features, origins, directions, weights), needs);
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, Meta, m) {
  m.impl("render_particles", render_particles_shape);
  m.impl("render_particles_backward", render_particles_backward_shapes);
}

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("render_particles", render_particles_op);
  m.impl("render_particles_backward", render_particles_backward_op);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("render_particles", render_particles_autograd);
}

}  // namespace topomask::ops
