#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/cuda_launch.h"
#include "particles/cuda/composite.h"
#include "particles/cuda/ray_slots.h"
#include "particles/cuda/ring_sums.h"
#include "particles/gpu.h"
#include "particles/ring_features.h"

namespace topomask {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

cuda::SampleType sample_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return cuda::SampleType::bfloat16;
    case at::kHalf:
      return cuda::SampleType::float16;
    case at::kDouble:
      return cuda::SampleType::float64;
    default:
      return cuda::SampleType::float32;
  }
}

const void* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr() : nullptr;
}

class Compositing : public torch::autograd::Function<Compositing> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& density_in,
                               const at::Tensor& colour_in, const at::Tensor& distance,
                               const at::Tensor& count, double density_scale, double spacing,
                               double farthest) {
    const at::Tensor density = density_in.contiguous(), colour = colour_in.contiguous();
    const at::IntArrayRef rays = density.sizes().slice(0, 2);  // B, R
    const CudaLaunch launch(density);
    const at::Tensor in_front = at::empty_like(distance);
    const at::Tensor shown = at::empty({rays[0], rays[1], 3}, distance.options()),
                     opacity = at::empty(rays, distance.options()),
                     depth = at::empty(rays, distance.options());
    context->saved_data["density_scale"] = density_scale;
    context->saved_data["spacing"] = spacing;
    context->saved_data["farthest"] = farthest;
    const variable_list saved = {density, colour, distance, count, in_front};
    check_cuda(
        cuda::composite_forward(
            arguments(context, saved),
            {shown.mutable_data_ptr(), opacity.mutable_data_ptr(), depth.mutable_data_ptr()}, launch.stream),
        "compositing");
    context->save_for_backward(saved);
    context->set_materialize_grads(false);
    return {shown, opacity, depth};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const CudaLaunch launch(saved[0]);
    const at::Tensor of_density = at::empty_like(saved[0]), of_colour = at::empty_like(saved[1]);
    variable_list ready;
    for (const at::Tensor& grad : grads) ready.push_back(grad.defined() ? grad.contiguous() : grad);
    cuda::CompositeGradients gradients;
    gradients.colour = data_or_null(ready[0]);
    gradients.opacity = data_or_null(ready[1]);
    gradients.depth = data_or_null(ready[2]);
    gradients.of_density = of_density.mutable_data_ptr();
    gradients.of_colour = of_colour.mutable_data_ptr();
    check_cuda(cuda::composite_backward(arguments(context, saved), gradients, launch.stream),
               "gradient of compositing");
    return {of_density, of_colour, {}, {}, {}, {}, {}};
  }

 private:
  static cuda::Composite arguments(AutogradContext* context, const variable_list& saved) {
    cuda::Composite c;
    c.rays = saved[3].numel();
    c.places = saved[0].size(-1);
    c.type = sample_type(saved[0].scalar_type());
    c.density_scale = context->saved_data["density_scale"].toDouble();
    c.spacing = context->saved_data["spacing"].toDouble();
    c.farthest = context->saved_data["farthest"].toDouble();
    c.density = saved[0].const_data_ptr();
    c.colour = saved[1].const_data_ptr();
    c.distance = saved[2].const_data_ptr();
    c.count = saved[3].const_data_ptr<std::int32_t>();
    c.in_front = saved[4].mutable_data_ptr();
    return c;
  }
};

}  // namespace

bool particles_run_on_cuda(const at::Tensor& positions) {
  return positions.is_cuda() &&
         (positions.scalar_type() == at::kFloat || positions.scalar_type() == at::kDouble);
}

RaySamples ray_samples_cuda(const at::Tensor& positions, const at::Tensor& origins,
                            const at::Tensor& directions, const RendererOptions& options) {
  const CudaLaunch launch(positions);
  const std::int64_t clouds = origins.size(0), rays = origins.size(1);
  const at::Tensor table =
      at::empty({clouds, cuda::cell_table_size(positions.size(1))}, positions.options().dtype(at::kLong));
  RaySamples samples;
  samples.query = at::empty({clouds * rays * options.samples, 3}, positions.options());
  samples.distance = at::empty({clouds * rays * options.samples}, positions.options());
  samples.count = at::empty({clouds * rays}, positions.options().dtype(at::kInt));
  samples.ptr = at::arange(clouds + 1, at::kLong) * (rays * options.samples);
  cuda::RaySlots slots;
  slots.clouds = clouds;
  slots.particles = positions.size(1);
  slots.rays = rays;
  slots.steps = ray_steps(options);
  slots.is_double = positions.scalar_type() == at::kDouble;
  slots.position = positions.const_data_ptr();
  slots.origin = origins.const_data_ptr<double>();
  slots.direction = directions.const_data_ptr<double>();
  slots.table = table.mutable_data_ptr<std::int64_t>();
  slots.query = samples.query.mutable_data_ptr();
  slots.distance = samples.distance.mutable_data_ptr();
  slots.count = samples.count.mutable_data_ptr<std::int32_t>();
  check_cuda(cuda::take_ray_slots(slots, launch.stream), "samples of rays");
  return samples;
}

at::Tensor ring_sums_cuda(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& queries,
                          const at::Tensor& index, const std::vector<double>& radii,
                          const std::vector<double>& bandwidths) {
  const CudaLaunch launch(positions);
  const at::Tensor out = at::empty(
      {index.size(0), static_cast<std::int64_t>(radii.size()) * (features.size(1) + 1)}, positions.options());
  AT_DISPATCH_FLOATING_TYPES(positions.scalar_type(), "ring_sums", [&] {
    check_cuda(cuda::ring_sums(ring_sums_of<scalar_t>(positions, features, queries, index, radii, bandwidths),
                               out.mutable_data_ptr<scalar_t>(), launch.stream),
               "sums over rings");
  });
  return out;
}

std::pair<at::Tensor, at::Tensor> ring_sums_backward_cuda(const at::Tensor& positions,
                                                          const at::Tensor& features,
                                                          const at::Tensor& queries, const at::Tensor& index,
                                                          const std::vector<double>& radii,
                                                          const std::vector<double>& bandwidths,
                                                          const at::Tensor& out, const at::Tensor& grad) {
  const CudaLaunch launch(positions);
  const at::Tensor of_positions = at::empty_like(positions), of_features = at::empty_like(features);
  AT_DISPATCH_FLOATING_TYPES(positions.scalar_type(), "ring_sums_backward", [&] {
    const RingSums<scalar_t> sums =
        ring_sums_of<scalar_t>(positions, features, queries, index, radii, bandwidths);
    const at::Tensor workspace = bytes_on(positions, cuda::ring_sums_workspace(sums));
    check_cuda(cuda::ring_sums_backward(sums, out.const_data_ptr<scalar_t>(), grad.const_data_ptr<scalar_t>(),
                                        of_positions.mutable_data_ptr<scalar_t>(),
                                        of_features.mutable_data_ptr<scalar_t>(),
                                        workspace.mutable_data_ptr(), launch.stream),
               "gradient of sums over rings");
  });
  return {of_positions, of_features};
}

Rendered composited_cuda(const at::Tensor& density, const at::Tensor& colour, const RaySamples& samples,
                         double density_scale, const RendererOptions& options) {
  // The kernels' wide type is that of the samples' places: the two differ where float64 meets float32.
  const bool wide = samples.distance.scalar_type() == at::kDouble;
  const auto ready = [&](const at::Tensor& x) {
    return wide != (x.scalar_type() == at::kDouble) ? x.to(samples.distance.scalar_type()) : x;
  };
  const variable_list out = Compositing::apply(ready(density), ready(colour), samples.distance, samples.count,
                                               density_scale, options.spacing, options.farthest);
  return {out[0], out[1], out[2]};
}

}  // namespace topomask
