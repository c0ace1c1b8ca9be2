#include "particles/ring_features.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include "particles/gpu.h"

namespace topomask {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class RingFeatures : public torch::autograd::Function<RingFeatures> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& positions, const at::Tensor& features,
                            const at::Tensor& queries, const at::Tensor& index,
                            const std::vector<double>& radii, const std::vector<double>& bandwidths) {
    const variable_list ready = {positions.contiguous(), features.contiguous(), queries.contiguous(),
                                 index.contiguous()};
    const at::Tensor out = sums(ready, radii, bandwidths);
    context->save_for_backward({ready[0], ready[1], ready[2], ready[3], out});
    context->saved_data["radii"] = radii;
    context->saved_data["bandwidths"] = bandwidths;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const std::vector<double> radii = context->saved_data["radii"].toDoubleVector(),
                              bandwidths = context->saved_data["bandwidths"].toDoubleVector();
    const at::Tensor grad = grads[0].contiguous();
    if (grad.is_cuda()) {
      const auto [of_positions, of_features] =
          ring_sums_backward_cuda(saved[0], saved[1], saved[2], saved[3], radii, bandwidths, saved[4], grad);
      return {of_positions, of_features, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const at::Tensor of_positions = at::empty_like(saved[0]), of_features = at::empty_like(saved[1]);
    AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "ring_features_backward", [&] {
      ring_sums_backward(ring_sums_of<scalar_t>(saved[0], saved[1], saved[2], saved[3], radii, bandwidths),
                         saved[4].const_data_ptr<scalar_t>(), grad.const_data_ptr<scalar_t>(),
                         of_positions.mutable_data_ptr<scalar_t>(), of_features.mutable_data_ptr<scalar_t>());
    });
    return {of_positions, of_features, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  // x: positions, features, queries, index
  static at::Tensor sums(const variable_list& x, const std::vector<double>& radii,
                         const std::vector<double>& bandwidths) {
    if (x[0].is_cuda()) return ring_sums_cuda(x[0], x[1], x[2], x[3], radii, bandwidths);
    const at::Tensor out = at::empty(
        {x[3].size(0), static_cast<std::int64_t>(radii.size()) * (x[1].size(1) + 1)}, x[0].options());
    AT_DISPATCH_FLOATING_TYPES(x[0].scalar_type(), "ring_features", [&] {
      ring_sums(ring_sums_of<scalar_t>(x[0], x[1], x[2], x[3], radii, bandwidths),
                out.mutable_data_ptr<scalar_t>());
    });
    return out;
  }
};

}  // namespace

at::Tensor ring_features(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& queries,
                         const at::Tensor& index, const std::vector<double>& radii,
                         const std::vector<double>& bandwidths) {
  if (!positions.is_cpu() && !particles_run_on_cuda(positions))
    return composed_ring_features(positions, features, queries, index, radii, bandwidths);
  return RingFeatures::apply(positions, features, queries, index, radii, bandwidths);
}

at::Tensor composed_ring_features(const at::Tensor& positions, const at::Tensor& features,
                                  const at::Tensor& queries, const at::Tensor& index,
                                  const std::vector<double>& radii, const std::vector<double>& bandwidths) {
  const std::int64_t samples = index.size(0), neighbours = index.size(1), width = features.size(1),
                     rings = static_cast<std::int64_t>(radii.size());
  if (positions.size(0) == 0 || neighbours == 0) {  // nothing to select from: all sums are 0
    return at::zeros({samples, rings * (width + 1)}, positions.options()) +
           0 * (positions.sum() + features.sum());
  }
  const at::Tensor real = index.ge(0), which = index.clamp_min(0).to(at::kLong).view(-1);
  // Missing neighbours are put at a distance that has a gradient, and weighed with 0.
  const at::Tensor offset =
      at::where(real.unsqueeze(-1),
                positions.index_select(0, which).view({samples, neighbours, 3}) - queries.unsqueeze(1), 1.0);
  const at::Tensor distance = at::norm(offset, 2, {-1}, /*keepdim=*/true);  // [P, K, 1]
  const at::Tensor radius = at::tensor(radii, positions.options()),
                   bandwidth = at::tensor(bandwidths, positions.options());
  constexpr double kFarAway = 100;  // bandwidths, where weights are 0 in any type; keeps gradients finite
  const at::Tensor weight = at::exp(-((distance - radius) / bandwidth).clamp_max(kFarAway).square()) *
                            real.unsqueeze(-1);         // [P, K, R]
  const at::Tensor mass = weight.sum(1).unsqueeze(-1);  // [P, R, 1]
  const at::Tensor near =
      at::where(real.unsqueeze(-1), features.index_select(0, which).view({samples, neighbours, width}), 0.0);
  const at::Tensor mean = at::matmul(weight.transpose(1, 2), near) / (mass + kRingMargin);  // [P, R, F]
  return at::cat({mean, at::log1p(mass)}, -1).flatten(1);
}

}  // namespace topomask
