#include "topomask/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>

#include <cmath>

#include "attention/engines.h"
#include "core/check.h"
#include "core/flops.h"
#include "core/tensors.h"

namespace topomask {

namespace {

void check_operand(const char* argument, const at::Tensor& x, const at::Tensor& q, bool finite) {
  check(x.defined() && (x.dim() == 4 || x.dim() == 3),
        "attention: {} must be [B, H, N, d] or packed [N, H, d], got {}", argument, describe(x));
  check(x.dim() == q.dim(), "attention: q and {} must have the same number of dimensions, got {} and {}",
        argument, q.dim(), x.dim());
  check(x.is_cpu() || x.is_cuda(), "attention: {} must be on cpu or cuda, got {}", argument,
        x.device().str());
  check(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble || x.scalar_type() == at::kBFloat16 ||
            (x.is_cuda() && x.scalar_type() == at::kHalf),
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

}  // namespace

ScoreRule score_rule_of(const AttentionOptions& options, Engine engine, std::int64_t d) {
  ScoreRule rule;
  rule.guard = options.normaliser_guard;
  if (options.kind == AttentionKind::softmax) {
    rule.kind = ScoreKind::softmax;
    rule.scale = 1 / std::sqrt(static_cast<double>(d));
  } else if (options.feature_map.kind == FeatureMapKind::relu && engine != Engine::feature) {
    // The mask and the dense engine form ReLU features themselves, in their kernels where those can.
    rule.kind = ScoreKind::relu;
    rule.epsilon = options.feature_map.epsilon;
  }
  return rule;
}

void check_attention_operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              std::int64_t num_nodes, std::int64_t heads, const AttentionOptions& options) {
  check(q.defined(), "attention: q must be [B, H, N, d] or packed [N, H, d], got an undefined tensor");
  check_operand("q", q, q, options.check_finite);
  check_operand("k", k, q, options.check_finite);
  check_operand("v", v, q, options.check_finite);
  check(q.size(-1) == k.size(-1), "attention: q and k must have the same number of channels, got {} and {}",
        q.size(-1), k.size(-1));
  check(q.size(-1) >= 1, "attention: q and k must have at least one channel, got {}", describe(q));
  const std::int64_t nodes = q.size(q.dim() == 3 ? 0 : 2);
  check(nodes == num_nodes, "attention: the mask is for {} nodes, q has {}", num_nodes, nodes);
  check(heads == 1 || heads == q.size(1), "attention: the mask has {} heads, q has {}", heads, q.size(1));
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const MaskPtr& mask,
                     const AttentionOptions& options) {
  check(mask != nullptr, "attention: mask must not be null (NoMask is attention without one)");
  check_attention_operands(q, k, v, mask->num_nodes(), mask->heads(), options);
  const bool packed = q.dim() == 3;
  const auto work_dtype = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto prepare = [&](const at::Tensor& x) {
    const at::Tensor rows = packed ? x.permute({1, 0, 2}).unsqueeze(0) : x;
    // The GPU's kernels read 16-bit numbers and any steps between rows; copies would cost more than they do.
    return x.is_cuda() ? rows : rows.to(work_dtype).contiguous();
  };
  const at::Tensor queries = prepare(q), keys = prepare(k), values = prepare(v);
  if (const std::optional<c10::Device> own = mask->device()) {
    check(*own == q.device(), "attention: mask '{}' must be on {} as q, got {}", mask->name(),
          q.device().str(), own->str());
  }
  if (v.numel() == 0) return v.clone();

  const AttentionShape shape = AttentionShape::of(queries, values);
  const AttentionPlan plan = plan_attention(*mask, shape, options);

  EngineInputs inputs;
  inputs.rule = score_rule_of(options, plan.engine, shape.d);
  const bool as_they_are =
      inputs.rule.kind != ScoreKind::features || options.feature_map.kind == FeatureMapKind::identity;
  // Features of 16-bit numbers are computed in float32 and rounded once.
  const auto features = [&](const at::Tensor& x, bool is_query) {
    return as_they_are ? x : options.feature_map(x.to(work_dtype), is_query).to(x.scalar_type()).contiguous();
  };
  inputs.q = features(queries, true);
  inputs.k = features(keys, false);
  inputs.v = values;
  inputs.max_workspace = plan.max_workspace;
  at::Tensor out;
  switch (plan.engine) {
    case Engine::mask:
      out = run_mask_engine(inputs, *mask);
      break;
    case Engine::feature:
      out = run_feature_engine(inputs, mask);
      break;
    default:
      out = run_dense_engine(inputs, *mask);
      break;
  }
  if (packed) out = out.squeeze(0).permute({1, 0, 2});
  return out.to(v.scalar_type());
}

FlopCount attention_flops() {
  return {flop_counters().multiply_adds.load(), flop_counters().other.load()};
}

void reset_attention_flops() {
  flop_counters().multiply_adds = 0;
  flop_counters().other = 0;
}

}  // namespace topomask
