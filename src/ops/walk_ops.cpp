#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include "core/random.h"
#include "core/tensors.h"
#include "ops/arguments.h"
#include "ops/library_call.h"
#include "topomask/features.h"
#include "topomask/kernels.h"
#include "topomask/plan.h"

namespace topomask::ops {
namespace {

// `ensemble`: which of the sets that a seed gives.
FeatureOptions with_ensemble(FeatureOptions options, std::int64_t ensemble) {
  check(ensemble >= 0 && ensemble < (std::int64_t{1} << 30), "walks: ensemble must be below 2^30, got {}",
        ensemble);
  options.walks.ensemble = static_cast<std::uint32_t>(ensemble);
  return options;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> sample_features_op(
    const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight, std::string_view walks,
    std::int64_t ensemble) {
  const FeatureOptions options = with_ensemble(walks_of(walks), ensemble);
  WalkFeatures features =
      sample_walk_features(graph_from(row_ptr, col, weight, true), options.walks, options.importance_weights);
  return {features.row_ptr, features.col, features.deposit_ptr, features.hop, features.load};
}

WalkOptions paths_of(std::string_view walks) {
  return walks_of(walks, {"importance_weights"}).walks;
}

at::Tensor sample_walks_op(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight,
                           std::string_view walks) {
  return sample_walks(graph_from(row_ptr, col, weight, true), paths_of(walks));
}

at::Tensor derive_seeds(std::int64_t seed, std::int64_t count) {
  check(count >= 0, "derive_seeds: count must be at least 0, got {}", count);
  at::Tensor seeds = at::empty({count}, at::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    seeds.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(
        derive_seed(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(i)));
  }
  return seeds;
}

// The comparison in words.
std::string plan_ensembles_op(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight,
                              bool directed, std::string_view kernel, std::string_view walks,
                              std::optional<double> error, std::optional<double> confidence,
                              std::optional<std::int64_t> features, std::optional<std::int64_t> channels) {
  PlanOptions request;
  request.error = error.value_or(request.error);
  request.confidence = confidence.value_or(request.confidence);
  request.features = features.value_or(request.features);
  request.channels = channels.value_or(request.channels);
  return compare_ensembles(graph_from(row_ptr, col, weight, directed), kernel_of(kernel), walks_of(walks),
                           request)
      .to_string();
}

at::Tensor exact_kernel_op(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight,
                           bool directed, std::string_view kernel) {
  return exact_kernel(graph_from(row_ptr, col, weight, directed), kernel_of(kernel));
}

WalkFeatures features_from(const at::Tensor& deposit_ptr, const at::Tensor& hop, const at::Tensor& load) {
  check(deposit_ptr.dim() == 1 && deposit_ptr.size(0) >= 1 && deposit_ptr.scalar_type() == at::kLong &&
            deposit_ptr.is_contiguous(),
        "modulate: deposit_ptr must be contiguous int64 [nnz+1], got {}", describe(deposit_ptr));
  check(hop.dim() == 1 && hop.scalar_type() == at::kShort && hop.is_contiguous(),
        "modulate: hop must be contiguous int16 [deposits], got {}", describe(hop));
  check(load.dim() == 1 && load.size(0) == hop.size(0) && load.scalar_type() == at::kFloat &&
            load.is_contiguous(),
        "modulate: load must be contiguous float32 [{}] like hop, got {}", hop.size(0), describe(load));
  check_same_place("modulate", "deposit_ptr", deposit_ptr, "load", load);
  check_same_place("modulate", "hop", hop, "load", load);
  check(!deposit_ptr.is_cpu() ||
            deposit_ptr.const_data_ptr<std::int64_t>()[deposit_ptr.size(0) - 1] == hop.size(0),
        "modulate: deposit_ptr must end with the {} deposits", hop.size(0));
  WalkFeatures features;
  features.deposit_ptr = deposit_ptr;
  features.hop = hop;
  features.load = load;
  return features;
}

TensorFunction run_modulate(const at::Tensor& deposit_ptr, const at::Tensor& hop, const at::Tensor& load) {
  return [=](const Tensors& in) { return features_from(deposit_ptr, hop, load).values(in[0]); };
}

at::Tensor modulate_op(const at::Tensor& f, const at::Tensor& deposit_ptr, const at::Tensor& hop,
                       const at::Tensor& load) {
  return without_graph(run_modulate(deposit_ptr, hop, load), {f});
}

at::Tensor modulate_backward_op(const at::Tensor& grad, const at::Tensor& f, const at::Tensor& deposit_ptr,
                                const at::Tensor& hop, const at::Tensor& load) {
  return gradients_of(run_modulate(deposit_ptr, hop, load), {f}, grad, {true})[0];
}

at::Tensor modulate_autograd(const at::Tensor& f, const at::Tensor& deposit_ptr, const at::Tensor& hop,
                             const at::Tensor& load) {
  static const auto forward = find_operator<decltype(modulate_op)>("topomask::modulate");
  static const auto backward = find_operator<decltype(modulate_backward_op)>("topomask::modulate_backward");
  LibraryCall call;
  call.run = run_modulate(deposit_ptr, hop, load);
  call.forward_operator = [=](const Tensors& x) { return forward.call(x[0], deposit_ptr, hop, load); };
  call.backward_operator = [=](const at::Tensor& grad, const Tensors& x, const std::vector<bool>&) {
    return Tensors{backward.call(grad, x[0], deposit_ptr, hop, load)};
  };
  return differentiable({f}, call);
}

// ---- shapes for tracing ----

at::Tensor sample_walks_shape(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor&,
                              std::string_view walks) {
  const WalkOptions options = paths_of(walks);
  return shape_only({row_ptr.sym_size(0) - 1, options.num_walks, options.max_hops + 1}, col);
}

at::Tensor exact_kernel_shape(const at::Tensor& row_ptr, const at::Tensor&, const at::Tensor&, bool,
                              std::string_view) {
  const c10::SymInt nodes = row_ptr.sym_size(0) - 1;
  return shape_only({nodes, nodes}, row_ptr, at::kDouble);
}

at::Tensor modulate_shape(const at::Tensor& f, const at::Tensor& deposit_ptr, const at::Tensor&,
                          const at::Tensor&) {
  return shape_only({f.sym_size(0), deposit_ptr.sym_size(0) - 1}, f);
}

at::Tensor modulate_backward_shape(const at::Tensor&, const at::Tensor& f, const at::Tensor&,
                                   const at::Tensor&, const at::Tensor&) {
  return shape_only(f.sym_sizes(), f);
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, Meta, m) {
  m.impl("sample_walks", sample_walks_shape);
  m.impl("exact_kernel", exact_kernel_shape);
  m.impl("modulate", modulate_shape);
  m.impl("modulate_backward", modulate_backward_shape);
}

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("sample_features", sample_features_op);
  m.impl("sample_walks", sample_walks_op);
  m.impl("exact_kernel", exact_kernel_op);
  m.impl("plan_ensembles", plan_ensembles_op);
  m.impl("derive_seeds", derive_seeds);
  m.impl("modulate", modulate_op);
  m.impl("modulate_backward", modulate_backward_op);
}

TORCH_LIBRARY_IMPL(topomask, Autograd, m) {
  m.impl("modulate", modulate_autograd);
}

}  // namespace topomask::ops
