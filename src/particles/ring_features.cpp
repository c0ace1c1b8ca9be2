#include "particles/ring_features.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include "particles/cpu/ring_sums.h"

namespace topomask {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class T>
RingSums<T> sums_of(const variable_list& tensors, const std::vector<double>& radii,
                    const std::vector<double>& bandwidths) {
  const at::Tensor &positions = tensors[0], &features = tensors[1], &queries = tensors[2],
                   &index = tensors[3];
  RingSums<T> sums;
  sums.samples = index.size(0);
  sums.neighbours = index.size(1);
  sums.particles = positions.size(0);
  sums.features = features.size(1);
  sums.rings = static_cast<std::int64_t>(radii.size());
  sums.position = positions.const_data_ptr<T>();
  sums.feature = features.const_data_ptr<T>();
  sums.query = queries.const_data_ptr<T>();
  sums.index = index.const_data_ptr<std::int32_t>();
  sums.radius = radii.data();
  sums.bandwidth = bandwidths.data();
  return sums;
}

class RingFeatures : public torch::autograd::Function<RingFeatures> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& positions, const at::Tensor& features,
                            const at::Tensor& queries, const at::Tensor& index,
                            const std::vector<double>& radii, const std::vector<double>& bandwidths) {
    const variable_list ready = {positions.contiguous(), features.contiguous(), queries.contiguous(),
                                 index.contiguous()};
    const at::Tensor out =
        at::empty({index.size(0), static_cast<std::int64_t>(radii.size()) * (features.size(1) + 1)},
                  positions.options());
    AT_DISPATCH_FLOATING_TYPES(positions.scalar_type(), "ring_features", [&] {
      ring_sums(sums_of<scalar_t>(ready, radii, bandwidths), out.mutable_data_ptr<scalar_t>());
    });
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
    const at::Tensor of_positions = at::empty_like(saved[0]), of_features = at::empty_like(saved[1]);
    AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "ring_features_backward", [&] {
      ring_sums_backward(sums_of<scalar_t>(saved, radii, bandwidths), saved[4].const_data_ptr<scalar_t>(),
                         grad.const_data_ptr<scalar_t>(), of_positions.mutable_data_ptr<scalar_t>(),
                         of_features.mutable_data_ptr<scalar_t>());
    });
    return {of_positions, of_features, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor ring_features(const at::Tensor& positions, const at::Tensor& features, const at::Tensor& queries,
                         const at::Tensor& index, const std::vector<double>& radii,
                         const std::vector<double>& bandwidths) {
  if (!positions.is_cpu())
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
