#include "topomask/features.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "core/check.h"
#include "core/flops.h"
#include "core/gpu.h"
#include "walks/compile_plan.h"
#include "walks/cpu/modulate.h"
#include "walks/cpu/sample.h"
#include "walks/gpu.h"

namespace topomask {

namespace {

DepositView deposit_view(const at::Tensor& deposit_ptr, const at::Tensor& hop, const at::Tensor& load) {
  return {deposit_ptr.size(0) - 1, deposit_ptr.const_data_ptr<std::int64_t>(),
          hop.const_data_ptr<std::int16_t>(), load.const_data_ptr<float>()};
}

// values = T f with the sparse matrix T of loads.
at::Tensor modulated(const at::Tensor& modulation, const at::Tensor& deposit_ptr, const at::Tensor& hop,
                     const at::Tensor& load) {
  const at::Tensor f = modulation.contiguous();
  count_multiply_adds(f.size(0) * hop.size(0));
  if (f.is_cuda()) return modulate_cuda(f, deposit_ptr, hop, load);
  const DepositView deposits = deposit_view(deposit_ptr, hop, load);
  at::Tensor values = at::empty({f.size(0), deposits.nnz}, f.options());
  if (f.scalar_type() == at::kDouble) {
    modulate(deposits, f.const_data_ptr<double>(), f.size(0), f.size(1), values.data_ptr<double>());
  } else {
    modulate(deposits, f.const_data_ptr<float>(), f.size(0), f.size(1), values.data_ptr<float>());
  }
  return values;
}

// T^T.
at::Tensor modulated_back(const at::Tensor& of_values, std::int64_t terms, const at::Tensor& deposit_ptr,
                          const at::Tensor& hop, const at::Tensor& load) {
  const at::Tensor given = of_values.contiguous();
  count_multiply_adds(given.size(0) * hop.size(0));
  if (given.is_cuda()) return modulate_backward_cuda(given, terms, deposit_ptr, hop, load);
  const DepositView deposits = deposit_view(deposit_ptr, hop, load);
  at::Tensor grad = at::empty({given.size(0), terms}, given.options());
  if (grad.scalar_type() == at::kDouble) {
    modulate_backward(deposits, given.const_data_ptr<double>(), grad.size(0), terms, grad.data_ptr<double>());
  } else {
    modulate_backward(deposits, given.const_data_ptr<float>(), grad.size(0), terms, grad.data_ptr<float>());
  }
  return grad;
}

class Modulate : public torch::autograd::Function<Modulate> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& modulation,
                            const at::Tensor& deposit_ptr, const at::Tensor& hop, const at::Tensor& load) {
    context->save_for_backward({deposit_ptr, hop, load});
    context->saved_data["terms"] = modulation.size(1);
    return modulated(modulation, deposit_ptr, hop, load);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const std::int64_t terms = context->saved_data["terms"].toInt();
    return {modulated_back(grads[0], terms, saved[0], saved[1], saved[2]), at::Tensor(), at::Tensor(),
            at::Tensor()};
  }
};

WalkFeatures features_from(const FeaturePieces& pieces, const WalkOptions& options, bool exact) {
  WalkFeatures features;
  features.row_ptr = at::empty({pieces.num_rows + 1}, at::kLong);
  features.col = at::empty({pieces.nnz}, at::kInt);
  features.deposit_ptr = at::empty({pieces.nnz + 1}, at::kLong);
  features.hop = at::empty({pieces.num_deposits}, at::kShort);
  features.load = at::empty({pieces.num_deposits}, at::kFloat);
  pieces.copy_to(features.row_ptr.data_ptr<std::int64_t>(), features.col.data_ptr<std::int32_t>(),
                 features.deposit_ptr.data_ptr<std::int64_t>(), features.hop.data_ptr<std::int16_t>(),
                 features.load.data_ptr<float>());
  features.num_columns = pieces.num_rows;
  features.max_hops = options.max_hops;
  features.exact = exact;
  return features;
}

}  // namespace

at::Tensor WalkFeatures::values(const at::Tensor& modulation) const {
  check(modulation.dim() == 1 || modulation.dim() == 2,
        "values: modulation must be [terms] or [heads, terms], got {} dimensions", modulation.dim());
  check(modulation.scalar_type() == at::kFloat || modulation.scalar_type() == at::kDouble,
        "values: modulation must be float32 or float64, got {}", c10::toString(modulation.scalar_type()));
  check(modulation.device() == load.device(), "values: modulation must be on {} like the features, got {}",
        load.device().str(), modulation.device().str());
  const bool one_row = modulation.dim() == 1;
  const at::Tensor rows = one_row ? modulation.unsqueeze(0) : modulation;
  const bool learning = at::GradMode::is_enabled() && rows.requires_grad();
  const at::Tensor found = learning ? Modulate::apply(rows, deposit_ptr, hop, load)
                                    : modulated(rows.detach(), deposit_ptr, hop, load);
  return one_row ? found.squeeze(0) : found;
}

at::Tensor WalkFeatures::values_gradient(const at::Tensor& of_values, std::int64_t terms) const {
  const at::NoGradGuard no_graph;
  return modulated_back(of_values, terms, deposit_ptr, hop, load);
}

at::Tensor WalkFeatures::to_dense(const at::Tensor& modulation) const {
  check(modulation.dim() == 1, "to_dense: modulation must be [terms], got {} dimensions", modulation.dim());
  if (padded) return trimmed().to_dense(modulation);
  const at::Tensor rows = at::repeat_interleave(row_ptr.diff(), std::optional<std::int64_t>(col.size(0)));
  const at::Tensor dense = at::zeros({num_nodes(), num_columns}, modulation.options());
  return dense.index_put({rows, col.to(at::kLong)}, values(modulation));
}

WalkFeatures WalkFeatures::trimmed() const {
  WalkFeatures whole = *this;
  if (!padded) return whole;
  const std::int64_t entries = row_ptr[num_nodes()].item<std::int64_t>();
  const std::int64_t deposits = deposit_ptr[entries].item<std::int64_t>();
  whole.col = col.narrow(0, 0, entries);
  whole.deposit_ptr = deposit_ptr.narrow(0, 0, entries + 1);
  whole.hop = hop.narrow(0, 0, deposits);
  whole.load = load.narrow(0, 0, deposits);
  whole.padded = false;
  return whole;
}

WalkFeatures WalkFeatures::to(c10::Device device) const {
  WalkFeatures moved = device == row_ptr.device() ? *this : trimmed();
  for (at::Tensor* part : {&moved.row_ptr, &moved.col, &moved.deposit_ptr, &moved.hop, &moved.load}) {
    *part = part->to(device);
  }
  return moved;
}

WalkFeatures sample_walk_features(const Graph& graph, const WalkOptions& options, bool importance_weights,
                                  bool padded) {
  const WalkPlan plan = compile_plan(options, importance_weights, true);
  if (graph.row_ptr.is_cuda()) return sample_walk_features_cuda(graph, plan, options.max_hops, padded);
  const CsrView rows = graph.view();
  const bool exact = ensemble_is_exhaustive(rows, plan);
  WalkFeatures features = features_from(
      exact ? enumerate_feature_pieces(rows, plan) : sample_feature_pieces(rows, plan), options, exact);
  features.longest_row = std::min(most_deposits(plan, graph.out_degree, rows.num_nodes), rows.num_nodes);
  return features;
}

WalkFeatures one_hot_features(std::int64_t num_nodes, c10::Device device) {
  if (device.is_cuda()) return one_hot_features_cuda(num_nodes, device);
  WalkFeatures features;
  features.row_ptr = at::arange(num_nodes + 1, at::kLong);
  features.col = at::arange(num_nodes, at::kInt);
  features.deposit_ptr = features.row_ptr;
  features.hop = at::zeros({num_nodes}, at::kShort);
  features.load = at::ones({num_nodes}, at::kFloat);
  features.num_columns = num_nodes;
  features.max_hops = 0;
  features.exact = true;
  features.longest_row = 1;
  return features;
}

GraphFeatures sample_features(const Graph& graph, const FeatureOptions& options) {
  GraphFeatures result;
  result.ensembles = options.ensembles;
  const bool asymmetric = options.ensembles == Ensembles::asymmetric;
  check(asymmetric || capture_id(graph.device()) == 0,
        "sample_features: a CUDA graph can capture asymmetric features alone; make shared or independent "
        "ones before "
        "the capture");
  result.query =
      sample_walk_features(graph, options.walks, options.importance_weights, asymmetric && options.padded);
  if (asymmetric) {
    result.key = one_hot_features(graph.num_nodes(), graph.device());
    return result;
  }
  const bool symmetric = graph.is_symmetric();
  WalkOptions key_walks = options.walks;
  if (options.ensembles == Ensembles::shared) {
    if (symmetric) {
      result.key = result.query;
      return result;
    }
  } else {
    key_walks.ensemble += 1;
  }
  result.key =
      sample_walk_features(symmetric ? graph : graph.transposed(), key_walks, options.importance_weights);
  return result;
}

}  // namespace topomask
