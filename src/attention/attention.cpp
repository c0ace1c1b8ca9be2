#include "topomask/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "attention/engines.h"
#include "core/check.h"
#include "core/flops.h"
#include "core/tensors.h"

namespace topomask {

namespace {

bool has_attention_dtype(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble ||
         x.scalar_type() == at::kBFloat16 || (x.is_cuda() && x.scalar_type() == at::kHalf);
}

// Whether x goes with q. Composing the error message takes longer than a small call, so that comes later.
bool goes_with(const at::Tensor& x, const at::Tensor& q) {
  return x.defined() && (x.dim() == 4 || x.dim() == 3) && x.dim() == q.dim() && (x.is_cpu() || x.is_cuda()) &&
         has_attention_dtype(x) && x.scalar_type() == q.scalar_type() && x.device() == q.device() &&
         x.sizes().slice(0, x.dim() - 1) == q.sizes().slice(0, q.dim() - 1);
}

void check_operand(const char* argument, const at::Tensor& x, const at::Tensor& q, bool finite) {
  if (!finite && goes_with(x, q)) return;
  check(x.defined() && (x.dim() == 4 || x.dim() == 3),
        "attention: {} must be [B, H, N, d] or packed [N, H, d], got {}", argument, describe(x));
  check(x.dim() == q.dim(), "attention: q and {} must have the same number of dimensions, got {} and {}",
        argument, q.dim(), x.dim());
  check(x.is_cpu() || x.is_cuda(), "attention: {} must be on cpu or cuda, got {}", argument,
        x.device().str());
  check(has_attention_dtype(x),
        "attention: {} must be float32, float64, bfloat16 or, on a GPU, float16, got {} on {}", argument,
        c10::toString(x.scalar_type()), x.device().str());
  check(x.scalar_type() == q.scalar_type(), "attention: q and {} must have one dtype, got {} and {}",
        argument, c10::toString(q.scalar_type()), c10::toString(x.scalar_type()));
  check(x.device() == q.device(), "attention: {} must be on {} as q, got {}", argument, q.device().str(),
        x.device().str());
  for (std::int64_t axis = 0; axis + 1 < q.dim(); ++axis) {
    check(x.size(axis) == q.size(axis), "attention: q and {} must agree in dimension {}, got {} and {}",
          argument, axis, q.size(axis), x.size(axis));
  }
  if (finite) {
    check(at::isfinite(x).all().item<bool>(), "attention: {} holds a NaN or an infinity", argument);
  }
}

// A NaN is not 0 or more.
void check_not_negative(const char* option, double value) {
  check(value >= 0 && std::isfinite(value), "attention: {} must be finite and 0 or more, got {}", option,
        value);
}

}  // namespace

ScoreRule score_rule_of(const AttentionOptions& options, std::int64_t d) {
  ScoreRule rule;
  rule.guard = options.normaliser_guard;
  if (options.kind == AttentionKind::softmax) {
    rule.kind = ScoreKind::softmax;
    rule.scale = 1 / std::sqrt(static_cast<double>(d));
  } else if (options.feature_map.kind == FeatureMapKind::relu) {
    // The engines form ReLU features themselves, in their kernels where those can.
    rule.kind = ScoreKind::relu;
    rule.epsilon = options.feature_map.epsilon;
  }
  return rule;
}

void check_attention_operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const std::string& mask, std::int64_t num_nodes, std::int64_t heads,
                              const AttentionOptions& options) {
  check(q.defined(), "attention: q must be [B, H, N, d] or packed [N, H, d], got an undefined tensor");
  check_operand("q", q, q, options.check_finite);
  check_operand("k", k, q, options.check_finite);
  check_operand("v", v, q, options.check_finite);
  check(q.size(-1) == k.size(-1), "attention: q and k must have the same number of channels, got {} and {}",
        q.size(-1), k.size(-1));
  if (q.size(-1) < 1) fail("attention: q and k must have at least one channel, got {}", describe(q));
  const std::int64_t nodes = q.size(q.dim() == 3 ? 0 : 2);
  check(nodes == num_nodes, "attention: mask '{}' is for {} nodes, q has {}", mask, num_nodes, nodes);
  check(heads == 1 || heads == q.size(1), "attention: mask '{}' has {} heads, q has {}", mask, heads,
        q.size(1));
  check_not_negative("epsilon", options.feature_map.epsilon);
  check_not_negative("normaliser_guard", options.normaliser_guard);
}

namespace {

// The arguments of attention() as its engine takes them.
struct PreparedCall {
  EngineInputs inputs;
  Engine engine = Engine::dense;
  bool packed = false;
  at::ScalarType dtype = at::kFloat;  // of the result

  at::Tensor finish(const at::Tensor& out) const {
    return (packed ? out.squeeze(0).permute({1, 0, 2}) : out).to(dtype);
  }
};

at::Tensor with_batch(const at::Tensor& x) {
  return x.dim() == 3 ? x.permute({1, 0, 2}).unsqueeze(0) : x;
}

PreparedCall prepare(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                     const AttentionOptions& options) {
  check_attention_operands(q, k, v, mask.name(), mask.num_nodes(), mask.heads(), options);
  if (const std::optional<c10::Device> own = mask.device()) {
    check(*own == q.device(), "attention: mask '{}' must be on {} as q, got {}", mask.name(),
          q.device().str(), own->str());
  }
  const auto work_dtype = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto rows_of = [&](const at::Tensor& x) {
    // The GPU's kernels read 16-bit numbers and any steps between rows; copies would cost more than they do.
    return x.is_cuda() ? with_batch(x) : with_batch(x).to(work_dtype).contiguous();
  };
  const at::Tensor queries = rows_of(q), keys = rows_of(k), values = rows_of(v);
  const AttentionShape shape = AttentionShape::of(queries, values);
  const AttentionPlan plan = plan_attention(mask, shape, options);

  PreparedCall call;
  call.engine = plan.engine;
  call.packed = q.dim() == 3;
  call.dtype = v.scalar_type();
  call.inputs.rule = score_rule_of(options, shape.d);
  const bool as_they_are =
      call.inputs.rule.kind != ScoreKind::features || options.feature_map.kind == FeatureMapKind::identity;
  const auto features = [&](const at::Tensor& x, bool is_query) {
    return as_they_are ? x : options.feature_map(x, is_query, mask.blocks()).contiguous();
  };
  call.inputs.q = features(queries, true);
  call.inputs.k = features(keys, false);
  call.inputs.v = values;
  call.inputs.max_workspace = plan.max_workspace;
  return call;
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const MaskPtr& mask,
                     const AttentionOptions& options) {
  check(mask != nullptr, "attention: mask must not be null (NoMask is attention without one)");
  if (v.defined() && v.numel() == 0 && v.dim() >= 3) {
    check_attention_operands(q, k, v, mask->name(), mask->num_nodes(), mask->heads(), options);
    return v.clone();
  }
  const PreparedCall call = prepare(q, k, v, *mask, options);
  switch (call.engine) {
    case Engine::mask:
      return call.finish(run_mask_engine(call.inputs, *mask));
    case Engine::feature:
      return call.finish(run_feature_engine(call.inputs, mask));
    default:
      return call.finish(run_dense_engine(call.inputs, *mask));
  }
}

bool has_pure_passes(const AttentionOptions& options, Engine engine, const AttentionShape& shape) {
  const bool widened = shape.device.is_cpu() && (shape.dtype == at::kBFloat16 || shape.dtype == at::kHalf);
  const bool as_they_are = options.kind == AttentionKind::softmax ||
                           options.feature_map.kind == FeatureMapKind::relu ||
                           options.feature_map.kind == FeatureMapKind::identity;
  return (engine == Engine::mask || engine == Engine::dense) && as_they_are && !widened;
}

namespace {

// The values of all patterns, one after the other.
at::Tensor values_to_keep(const std::vector<SparseEntries>& entries, at::ScalarType dtype) {
  if (entries.size() > 1) {
    std::vector<at::Tensor> flat;
    for (const SparseEntries& own : entries) flat.push_back(own.values.reshape(-1).to(dtype));
    return at::cat(flat);
  }
  return entries[0].values.to(dtype).contiguous().view(-1);
}

std::vector<SparseEntries> kept_entries(const Mask& mask, const at::Tensor& values) {
  std::vector<SparseEntries> entries;
  const auto patterns = mask.patterns();
  std::int64_t begin = 0;
  for (const auto& pattern : patterns) {
    const std::int64_t nnz = pattern->nnz(), size = patterns.size() > 1 ? nnz : values.numel();
    const at::Tensor own = values.narrow(0, begin, size);
    entries.push_back({pattern, nnz == 0 ? own.view({1, 0}) : own.view({-1, nnz})});
    begin += size;
  }
  return entries;
}

// From the gradient of M itself to those of the parameters.
std::vector<at::Tensor> matrix_gradients(const EngineInputs& inputs, const Mask& mask,
                                         const at::Tensor& of_matrix) {
  const at::AutoGradMode with_graph(true);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& parameter : mask.parameters()) leaves.push_back(parameter.detach().requires_grad_());
  const at::Tensor matrix = mask_matrix(inputs, *mask.with_parameters(leaves));
  if (!matrix.requires_grad()) return std::vector<at::Tensor>(leaves.size());
  return torch::autograd::grad({matrix}, leaves, {of_matrix.to(matrix.scalar_type())}, /*retain_graph=*/false,
                               /*create_graph=*/false, /*allow_unused=*/true);
}

}  // namespace

EngineResult attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const Mask& mask, const AttentionOptions& options) {
  const at::NoGradGuard no_graph;
  const PreparedCall call = prepare(q, k, v, mask, options);
  EngineResult result;
  if (call.engine == Engine::mask) {
    const std::vector<SparseEntries> entries = mask.entries();
    result = mask_engine_forward(call.inputs, entries, true);
    result.saved.push_back(
        values_to_keep(entries, q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  } else {
    result = dense_engine_forward(call.inputs, mask_matrix(call.inputs, mask), true);
  }
  result.out = call.finish(result.out);
  return result;
}

AttentionGradients attention_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const Mask& mask, const AttentionOptions& options,
                                      const EngineResult& result, bool mask_learns) {
  const at::NoGradGuard no_graph;
  const PreparedCall call = prepare(q, k, v, mask, options);
  EngineResult kept = result;
  kept.out = with_batch(result.out);
  EngineGradients gradients;
  AttentionGradients all;
  all.parameters.resize(mask.parameters().size());
  if (call.engine == Engine::mask) {
    const at::Tensor values = kept.saved.back();
    kept.saved.pop_back();
    gradients =
        mask_engine_backward(with_batch(grad), call.inputs, kept_entries(mask, values), kept, mask_learns);
    if (mask_learns) all.parameters = mask.entry_gradients(gradients.mask);
  } else {
    const at::Tensor matrix = mask_matrix(call.inputs, mask);
    gradients = dense_engine_backward(with_batch(grad), call.inputs, matrix, kept, mask_learns);
    if (mask_learns) all.parameters = matrix_gradients(call.inputs, mask, gradients.mask[0]);
  }
  const auto unpacked = [&](const at::Tensor& x) {
    return call.packed ? x.squeeze(0).permute({1, 0, 2}) : x;
  };
  all.q = unpacked(gradients.q);
  all.k = unpacked(gradients.k);
  all.v = unpacked(gradients.v);
  return all;
}

FlopCount attention_flops() {
  return {flop_counters().multiply_adds.load(), flop_counters().other.load()};
}

void reset_attention_flops() {
  flop_counters().multiply_adds = 0;
  flop_counters().other = 0;
}

}  // namespace topomask
