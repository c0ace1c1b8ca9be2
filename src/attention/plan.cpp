#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "attention/engines.h"
#include "core/check.h"
#include "topomask/attention.h"
#include "topomask/device.h"

namespace topomask {

namespace {

// What each engine reaches, measured on the machines of docs/performance.md: only ratios matter for the
// choice. Matrix products run near peak; the fused pass waits for gathered rows; the feature form streams its
// columns.
struct Rates {
  double dense, mask, feature, factors;  // multiply-adds / s
  double bandwidth;                      // bytes / s
  double launch;                         // s, for handing one kernel to a GPU
};
constexpr Rates kOneCore = {30e9, 17e9, 3e9, 25e9, 12e9, 0};
constexpr double kFusedFeatureRate =
    12e9;  // the feature form of sparse factors on a core, all columns at once
constexpr Rates kGpu = {15e12, 5e12, 10e12, 10e12, 2.5e12, 4e-6};
// The feature form on a GPU: bytes decide, its rate is only for masks that are dense. Columns are made, moved
// and added up by separate kernels, which read and write them about so often; what a sparse mask fetches
// comes from caches, and its indices serve many columns. Fitted to three cases, see the tests.
constexpr double kGpuColumnPasses = 11, kGpuSparseShare = 0.09;
constexpr double kTensorCoreRate = 150e12;  // the dense engine on a GPU, bfloat16 and float16

Rates rates_for(const AttentionShape& shape) {
  return shape.device.is_cpu() ? kOneCore : kGpu;
}

// 16-bit numbers are widened on the CPU.
double element_bytes(const AttentionShape& shape) {
  const auto own = static_cast<double>(c10::elementSize(shape.dtype));
  return shape.device.is_cpu() ? std::max(own, 4.0) : own;
}

// The dense engine's fused kernel never writes scores to memory.
bool keeps_scores_on_chip(const AttentionShape& shape) {
  return !shape.device.is_cpu() && (shape.dtype == at::kBFloat16 || shape.dtype == at::kHalf);
}

struct Sizes {
  double pairs, n, m, d_v, element;
};

void finish(PlanCandidate& candidate, double rate, const Rates& rates, double launches,
            double max_workspace) {
  candidate.predicted_cost =
      launches * rates.launch + std::max(candidate.multiply_adds / rate, candidate.bytes / rates.bandwidth);
  if (candidate.admissible && candidate.workspace > max_workspace) {
    candidate.admissible = false;
    candidate.reason = fmt::format("needs {:.3g} bytes of workspace, max_workspace is {:.3g}",
                                   candidate.workspace, max_workspace);
  }
}

PlanCandidate dense_candidate(const MaskProfile& mask, const Sizes& s, const AttentionShape& shape,
                              double max_workspace) {
  PlanCandidate c;
  c.engine = Engine::dense;
  c.admissible = true;
  c.multiply_adds = s.pairs * s.n * s.n * (s.m + s.d_v + 1);
  const double mask_bytes =
      static_cast<double>(mask.heads) * s.n * s.n * (shape.dtype == at::kDouble ? 8 : 4);
  c.bytes = s.element * s.pairs * s.n * (2 * s.m + 2 * s.d_v);
  const Rates rates = rates_for(shape);
  if (keeps_scores_on_chip(shape)) {
    c.bytes += mask_bytes;
    c.workspace = mask_bytes;
    finish(c, kTensorCoreRate, rates, 2, max_workspace);
    return c;
  }
  c.bytes += 3 * s.element * s.pairs * s.n * s.n;
  const auto block_rows = static_cast<double>(dense_block_rows(shape, std::int64_t{32} << 20));
  c.workspace = mask_bytes + 4 * s.element * s.pairs * s.n * block_rows;
  finish(c, rates.dense, rates, 8 * std::max(1.0, s.n / block_rows), max_workspace);
  return c;
}

PlanCandidate feature_candidate(const MaskProfile& mask, const Sizes& s, const AttentionShape& shape,
                                bool softmax, double max_workspace) {
  PlanCandidate c;
  c.engine = Engine::feature;
  c.admissible = !softmax;
  if (softmax) c.reason = "softmax scores are not a product of features";
  if (uses_factors(mask)) {
    const auto r = static_cast<double>(mask.rank);
    c.multiply_adds = 2 * s.pairs * s.n * s.m * r * (s.d_v + 1);
    c.bytes = s.element * s.pairs * s.n * (4 * s.m * r + 3 * s.d_v);
    c.workspace = s.element * s.pairs * s.n * (2 * s.m * r + s.d_v + 1);
    finish(c, rates_for(shape).factors, rates_for(shape), 8, max_workspace);
    return c;
  }
  const double columns = s.m * (s.d_v + 1);
  const bool on_cpu = shape.device.is_cpu();
  const double element = std::max(4.0, s.element);  // masks are applied in at least float32
  const double share = !on_cpu && mask.sparse() ? kGpuSparseShare : 1;
  c.multiply_adds = s.pairs * columns * (mask.multiply_adds_per_column + s.n);
  c.bytes = s.pairs * columns * (share * mask.bytes_per_column / 4 + (on_cpu ? 4 : kGpuColumnPasses) * s.n) *
            element;
  const auto block = static_cast<double>(feature_block(shape, static_cast<std::int64_t>(max_workspace)));
  c.workspace = 6 * element * s.pairs * s.n * (s.d_v + 1) * block;
  if (on_cpu && mask.sparse_factors) {
    // The fused forward pass takes one feature at a time and keeps its columns in the cache.
    c.bytes = s.pairs * s.m * (mask.bytes_per_column + s.n * s.element * (s.d_v + 1));
    finish(c, kFusedFeatureRate, rates_for(shape), 1, max_workspace);
    return c;
  }
  finish(c, rates_for(shape).feature, rates_for(shape), 10 * std::max(1.0, s.m / block), max_workspace);
  return c;
}

// Pattern and transpose, values of every head and the per-entry weights of the backward pass.
double sparse_workspace(const MaskProfile& mask, const Sizes& s) {
  const auto total = static_cast<double>(mask.entries);
  const double values = mask.pattern_per_head ? total : total * static_cast<double>(mask.heads);
  return total * 16 + values * 3 * std::max(4.0, s.element);
}

PlanCandidate mask_candidate(const MaskProfile& mask, const Sizes& s, const AttentionShape& shape,
                             double max_workspace) {
  PlanCandidate c;
  c.engine = Engine::mask;
  c.admissible = mask.sparse();
  if (!c.admissible) {
    c.reason = fmt::format("mask '{}' has no sparse entries", mask.name);
    return c;
  }
  const auto total = static_cast<double>(mask.entries);
  // Heads with patterns of their own count once each; a shared pattern serves every head.
  const bool own_patterns = mask.pattern_per_head;
  const double per_batch = own_patterns ? total : total * static_cast<double>(shape.heads);
  const double nonzeros = per_batch * static_cast<double>(shape.batch);
  c.multiply_adds = nonzeros * (s.m + s.d_v + 1);
  c.bytes = nonzeros * (4 + s.element) + s.element * s.pairs * s.n * (2 * s.m + 2 * s.d_v);
  c.workspace = sparse_workspace(mask, s);
  finish(c, rates_for(shape).mask, rates_for(shape), 2, max_workspace);
  return c;
}

}  // namespace

std::int64_t workspace_limit(const AttentionOptions& options, const AttentionShape& shape,
                             double operand_bytes, double wanted_bytes) {
  check(options.max_workspace >= 0, "max_workspace: expected at least 0 bytes, got {}",
        options.max_workspace);
  if (options.max_workspace != 0) return options.max_workspace;
  constexpr double kUsual = 1u << 31;
  const double usual = std::max(kUsual, 4 * operand_bytes);
  // What is free is asked for only where it matters: the question takes longer than a small attention.
  if (shape.device.is_cpu() || wanted_bytes <= usual) return static_cast<std::int64_t>(usual);
  constexpr double kShareOfFree = 0.75;
  return static_cast<std::int64_t>(
      std::max(usual, kShareOfFree * static_cast<double>(free_memory(shape.device))));
}

AttentionShape AttentionShape::of(const at::Tensor& q, const at::Tensor& v) {
  const bool packed = q.dim() == 3;
  AttentionShape shape;
  shape.batch = packed ? 1 : q.size(0);
  shape.heads = q.size(1);
  shape.num_nodes = packed ? q.size(0) : q.size(2);
  shape.d = q.size(-1);
  shape.d_v = v.size(-1);
  shape.dtype = q.scalar_type();
  shape.device = q.device();
  return shape;
}

AttentionPlan plan_attention(const Mask& mask, const AttentionShape& shape, const AttentionOptions& options) {
  return plan_attention(mask.profile(), shape, options);
}

AttentionPlan plan_attention(const MaskProfile& mask, const AttentionShape& shape,
                             const AttentionOptions& options) {
  const bool softmax = options.kind == AttentionKind::softmax;
  const std::int64_t features = softmax ? shape.d : options.feature_map.output_features(shape.d);
  const Sizes s = {static_cast<double>(shape.batch * shape.heads), static_cast<double>(shape.num_nodes),
                   static_cast<double>(features), static_cast<double>(shape.d_v), element_bytes(shape)};
  AttentionShape mapped = shape;
  mapped.d = features;
  AttentionPlan plan;
  const double operands = s.element * s.pairs * s.n * (2 * s.m + 2 * s.d_v);
  const double entries_workspace = mask.sparse() ? sparse_workspace(mask, s) : 0;
  plan.max_workspace = workspace_limit(options, shape, operands, entries_workspace);
  const auto limit = static_cast<double>(plan.max_workspace);
  plan.feature_block = feature_block(mapped, plan.max_workspace);
  plan.candidates = {mask_candidate(mask, s, mapped, limit),
                     feature_candidate(mask, s, mapped, softmax, limit),
                     dense_candidate(mask, s, mapped, limit)};
  if (options.engine != Engine::automatic) {
    for (const PlanCandidate& c : plan.candidates) {
      if (c.engine != options.engine) continue;
      check(c.admissible, "attention: engine '{}' cannot run this: {}", word_of(c.engine), c.reason);
    }
    plan.engine = options.engine;
    plan.why = "asked for";
    return plan;
  }
  const PlanCandidate* best = nullptr;
  for (const PlanCandidate& c : plan.candidates) {
    if (c.admissible && (best == nullptr || c.predicted_cost < best->predicted_cost)) best = &c;
  }
  if (best == nullptr) {
    std::string reasons;
    for (const PlanCandidate& c : plan.candidates) {
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", word_of(c.engine), c.reason);
    }
    fail("attention: no engine fits ({})", reasons);
  }
  plan.engine = best->engine;
  plan.why = fmt::format("least predicted time, {:.3g} s {}", best->predicted_cost,
                         shape.device.is_cpu() ? "per core" : "on a GPU");
  return plan;
}

std::string AttentionPlan::to_string() const {
  std::string text = fmt::format("engine: {} ({})\n", word_of(engine), why);
  text += fmt::format("  {:<8} {:>14} {:>12} {:>12} {:>12}  {}\n", "engine", "multiply-adds", "bytes",
                      "workspace", "seconds", "note");
  for (const PlanCandidate& c : candidates) {
    text += fmt::format("  {:<8} {:>14.4g} {:>12.4g} {:>12.4g} {:>12.3g}  {}\n", word_of(c.engine),
                        c.multiply_adds, c.bytes, c.workspace, c.predicted_cost,
                        c.admissible ? (c.engine == engine ? "taken" : "") : c.reason);
  }
  return text;
}

}  // namespace topomask
