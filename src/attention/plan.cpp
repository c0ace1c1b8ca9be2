#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "attention/engines.h"
#include "core/check.h"
#include "core/parallel.h"
#include "core/units.h"
#include "io/memory.h"
#include "topomask/attention.h"
#include "topomask/device.h"

namespace topomask {

namespace {

// The feature form on a GPU: bytes decide. Columns are made, moved and added up by separate kernels, which
// read and write them about this often; what a sparse mask fetches comes from caches, and its indices serve
// many columns. Fitted to three cases, see the tests.
constexpr double kGpuColumnPasses = 11, kGpuSparseShare = 0.09;

// Host time of a call, as a multiple of the mask engine's: other engines launch more kernels and allocate
// more arrays. Fitted to `topomask bench planner` on an H200.
constexpr double kHostOfMask = 1, kHostOfColumns = 1.2, kHostOfDense = 1.9;

// 16-bit numbers are widened on the CPU.
double element_bytes(const AttentionShape& shape) {
  const auto own = static_cast<double>(c10::elementSize(shape.dtype));
  return shape.device.is_cpu() ? std::max(own, 4.0) : own;
}

// What a call may take without being told: these bytes, or this share of the free memory. Free memory is
// queried only where it matters: the query takes longer than a small attention.
constexpr double kUsual = 1u << 31, kShareOfFree = 0.75;

// The dense engine's fused kernel never writes scores to memory.
bool keeps_scores_on_chip(const AttentionShape& shape) {
  return !shape.device.is_cpu() && (shape.dtype == at::kBFloat16 || shape.dtype == at::kHalf);
}

// What the candidates are made from.
struct Case {
  const MaskProfile& mask;
  AttentionShape shape;  // d counts features
  const DeviceRates& rates;
  double max_workspace;
  double pairs, n, m, d_v, element;
  bool new_values;  // of M, in this pass
  double random;    // bytes of random features and their projection, which every engine needs first

  double threads() const { return shape.device.is_cpu() ? num_threads() : 1; }
};

// The share of the bytes that no cache serves, if the work touches `working_set` of them.
double beyond_cache(const Case& s, double working_set) {
  return std::max(0.0, 1 - s.rates.cache * s.threads() / std::max(working_set, 1.0));
}

struct Overhead {
  double launches;  // of kernels
  double host = kHostOfMask;
};

// `extra`: seconds of one thread besides what the counts say. A GPU moves bytes while it computes, and works
// while the host prepares the next call: the longer of the two counts.
void finish(PlanCandidate& candidate, const Case& s, double rate, Overhead overhead, double beyond = 1,
            double extra = 0) {
  const DeviceRates& rates = s.rates;
  const double computing = candidate.multiply_adds / rate, moving = candidate.bytes / rates.bandwidth;
  const double passes = s.shape.device.is_cpu() ? computing + beyond * moving : std::max(computing, moving);
  const double of_one_thread = passes + candidate.value_multiply_adds / rates.values + extra;
  const double work = overhead.launches * rates.launch + of_one_thread / s.threads();
  candidate.predicted_cost =
      s.shape.device.is_cpu() ? rates.call + work : std::max(overhead.host * rates.call, work);
  const double max_workspace = s.max_workspace;
  if (candidate.admissible && candidate.workspace > max_workspace) {
    candidate.admissible = false;
    candidate.reason = fmt::format("needs {:.3g} bytes of workspace, max_workspace is {:.3g}",
                                   candidate.workspace, max_workspace);
  }
  candidate.workspace += s.random;
}

// The bytes of random features, if there is room for them.
double checked_random_features(const Case& s, const AttentionOptions& options, double d) {
  if (options.kind == AttentionKind::softmax || options.feature_map.kind != FeatureMapKind::favor) return 0;
  const double bytes = s.element * s.m * (2 * s.pairs * s.n + d);
  const bool limited = options.max_workspace != 0;
  double room = limited ? static_cast<double>(options.max_workspace) : kUsual;
  if (!limited && bytes > room) {
    const double free = s.shape.device.is_cpu() ? static_cast<double>(available_memory())
                                                : static_cast<double>(free_memory(s.shape.device));
    room = std::max(room, kShareOfFree * free);
  }
  check(bytes <= room, "attention: num_features {:.0f} takes {}, {} {}", s.m, format_bytes(bytes),
        limited ? "max_workspace is" : "the free memory has room for", format_bytes(room));
  return bytes;
}

// M's values are made from those of Phi: for one head, or for each that has its own f or its own walks.
// Besides the products, a value is found in a row of sums, written, and the sum cleared.
double new_value_work(const Case& s) {
  constexpr double kWorkPerEntry = 10;
  if (!s.new_values || s.mask.value_multiply_adds == 0) return 0;
  const double entries = s.mask.sparse_factors ? static_cast<double>(s.mask.entries) : 0;
  return (s.mask.value_multiply_adds + kWorkPerEntry * entries) *
         (s.mask.pattern_per_head ? 1 : static_cast<double>(s.mask.heads));
}

PlanCandidate dense_candidate(const Case& s) {
  const AttentionShape& shape = s.shape;
  PlanCandidate c;
  c.engine = Engine::dense;
  c.admissible = true;
  c.multiply_adds = s.pairs * s.n * s.n * (s.m + s.d_v + 1);
  const double mask_bytes =
      static_cast<double>(s.mask.heads) * s.n * s.n * (shape.dtype == at::kDouble ? 8 : 4);
  c.bytes = s.element * s.pairs * s.n * (2 * s.m + 2 * s.d_v);
  c.value_multiply_adds = new_value_work(s);  // the matrix is written out from the entries
  if (keeps_scores_on_chip(shape)) {
    c.bytes += mask_bytes;
    c.workspace = mask_bytes;
    finish(c, s, s.rates.dense_half, {2, kHostOfDense});
    return c;
  }
  c.bytes += 3 * s.element * s.pairs * s.n * s.n;
  const auto block_rows = static_cast<double>(dense_block_rows(shape, std::int64_t{32} << 20));
  c.workspace = mask_bytes + 4 * s.element * s.pairs * s.n * block_rows;
  finish(c, s, s.rates.dense, {8 * std::max(1.0, s.n / block_rows), kHostOfDense});
  return c;
}

// Column by column of Phi: a column takes what is less, its pairs of rows and keys or its state Z_c. The real
// cost is a little above that minimum.
PlanCandidate columns_candidate(const Case& s, PlanCandidate c) {
  const MaskProfile& mask = s.mask;
  const bool on_cpu = s.shape.device.is_cpu();
  // A pattern per head counts its own entries; a shared one serves every head.
  const double uses =
      static_cast<double>(s.shape.batch) * (mask.pattern_per_head ? 1 : static_cast<double>(s.shape.heads));
  const auto rows = static_cast<double>(mask.left_entries), keys = static_cast<double>(mask.right_entries);
  const double by_state = (rows + keys) * s.m * (s.d_v + 1);
  const double by_pair = mask.value_multiply_adds * (s.m + s.d_v + 1);
  c.multiply_adds = uses * (by_pair > 0 ? std::min(by_state, by_pair) : by_state);
  // Rows of q, k and v; the products of every entry of Phi, written and read.
  c.bytes = uses * s.element * (rows * (s.m + 2 * (s.d_v + 1)) + keys * (s.m + s.d_v));
  const double products = rows * s.d_v * s.element;
  c.workspace = on_cpu ? std::max(32768.0, s.n / 4) * (s.d_v + s.m) * s.element
                       : std::max(products, std::min(uses * products, 512e6));
  const bool tensor_cores = !on_cpu && s.shape.dtype == at::kBFloat16;
  const double rate = tensor_cores ? s.rates.feature_by_column_half : s.rates.feature_by_column;
  const double starts = s.pairs * s.n * s.rates.column_start;
  if (on_cpu) {
    const double fetched = s.element * (s.m + s.d_v);  // rows of q, k and v, for every entry of Phi
    // Far rows are gathered, and their products written and read again in another order.
    constexpr double kFarPasses = 5;
    const double far = beyond_cache(s, s.n * fetched) * mask.far_share * kFarPasses * c.bytes;
    finish(c, s, rate, {1}, 0, starts + far / s.rates.far_bandwidth);
  } else {
    finish(c, s, rate, {6, kHostOfColumns}, 1, starts + c.bytes / s.rates.far_bandwidth);
  }
  return c;
}

PlanCandidate feature_candidate(const Case& s, bool softmax) {
  const MaskProfile& mask = s.mask;
  const AttentionShape& shape = s.shape;
  PlanCandidate c;
  c.engine = Engine::feature;
  c.admissible = !softmax;
  if (softmax) c.reason = "softmax scores are not a product of features";
  if (uses_factors(mask)) {
    const auto r = static_cast<double>(mask.rank);
    c.multiply_adds = 2 * s.pairs * s.n * s.m * r * (s.d_v + 1);
    c.bytes = s.element * s.pairs * s.n * (4 * s.m * r + 3 * s.d_v);
    c.workspace = s.element * s.pairs * s.n * (2 * s.m * r + s.d_v + 1);
    finish(c, s, s.rates.factors, {8});
    return c;
  }
  if (mask.sparse_factors) return columns_candidate(s, c);
  const double columns = s.m * (s.d_v + 1);
  const bool on_cpu = shape.device.is_cpu();
  const double element = std::max(4.0, s.element);  // masks are applied in at least float32
  const double share = !on_cpu && mask.sparse() ? kGpuSparseShare : 1;
  c.multiply_adds = s.pairs * columns * (mask.multiply_adds_per_column + s.n);
  c.bytes = s.pairs * columns * (share * mask.bytes_per_column / 4 + (on_cpu ? 4 : kGpuColumnPasses) * s.n) *
            element;
  const auto block = static_cast<double>(feature_block(shape, static_cast<std::int64_t>(s.max_workspace)));
  c.workspace = 6 * element * s.pairs * s.n * (s.d_v + 1) * block;
  finish(c, s, s.rates.feature, {10 * std::max(1.0, s.m / block)});
  return c;
}

// Pattern and transpose, values of every head and the per-entry weights of the backward pass.
double sparse_workspace(const MaskProfile& mask, double element) {
  const auto total = static_cast<double>(mask.entries);
  const double values = mask.pattern_per_head ? total : total * static_cast<double>(mask.heads);
  return total * 16 + values * 3 * std::max(4.0, element);
}

PlanCandidate mask_candidate(const Case& s) {
  const MaskProfile& mask = s.mask;
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
  const double per_batch = own_patterns ? total : total * static_cast<double>(s.shape.heads);
  const double nonzeros = per_batch * static_cast<double>(s.shape.batch);
  c.multiply_adds = nonzeros * (s.m + s.d_v + 1);
  c.bytes = nonzeros * (4 + s.element) + s.element * s.pairs * s.n * (2 * s.m + 2 * s.d_v);
  c.value_multiply_adds = new_value_work(s);
  c.workspace = sparse_workspace(mask, s.element);
  if (!s.shape.device.is_cpu()) {
    finish(c, s, s.rates.mask, {2});
    return c;
  }
  const double fetched = s.element * (s.m + s.d_v);  // rows of k and v, for every nonzero
  const double far_bytes = nonzeros * mask.far_share * fetched;
  finish(c, s, s.rates.mask, {2}, beyond_cache(s, 2 * s.n * fetched),
         beyond_cache(s, s.n * fetched) * far_bytes / s.rates.far_bandwidth);
  return c;
}

}  // namespace

void check_max_workspace(const AttentionOptions& options) {
  check(options.max_workspace >= 0, "max_workspace: expected at least 0 bytes, got {}",
        options.max_workspace);
}

std::int64_t workspace_limit(const AttentionOptions& options, const AttentionShape& shape,
                             double operand_bytes, double wanted_bytes) {
  check_max_workspace(options);
  if (options.max_workspace != 0) return options.max_workspace;
  const double usual = std::max(kUsual, 4 * operand_bytes);
  if (shape.device.is_cpu() || wanted_bytes <= usual) return static_cast<std::int64_t>(usual);
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
  AttentionShape known = shape;
  if (at::GradMode::is_enabled()) {
    for (const at::Tensor& parameter : mask.parameters())
      known.learning = known.learning || (parameter.defined() && parameter.requires_grad());
  }
  return plan_attention(mask.profile(), known, options);
}

AttentionPlan plan_attention(const MaskProfile& mask, const AttentionShape& shape,
                             const AttentionOptions& options) {
  return plan_attention(mask, shape, options, rates_of(shape.device));
}

AttentionPlan plan_attention(const MaskProfile& mask, const AttentionShape& shape,
                             const AttentionOptions& options, const DeviceRates& rates) {
  const bool softmax = options.kind == AttentionKind::softmax;
  const std::int64_t features = softmax ? shape.d : options.feature_map.output_features(shape.d);
  Case s = {.mask = mask,
            .shape = shape,
            .rates = rates,
            .max_workspace = 0,
            .pairs = static_cast<double>(shape.batch * shape.heads),
            .n = static_cast<double>(shape.num_nodes),
            .m = static_cast<double>(features),
            .d_v = static_cast<double>(shape.d_v),
            .element = element_bytes(shape),
            // Without gradients a CPU keeps the values for as long as the parameters are the same.
            .new_values = shape.learning || !shape.device.is_cpu(),
            .random = 0};
  check_max_workspace(options);
  s.random = checked_random_features(s, options, static_cast<double>(shape.d));
  s.shape.d = features;
  AttentionPlan plan;
  const double operands = s.element * s.pairs * s.n * (2 * s.m + 2 * s.d_v);
  const double entries_workspace = mask.sparse() ? sparse_workspace(mask, s.element) : 0;
  plan.max_workspace = workspace_limit(options, shape, operands, entries_workspace);
  if (options.max_workspace != 0) plan.max_workspace -= static_cast<std::int64_t>(s.random);
  s.max_workspace = static_cast<double>(plan.max_workspace);
  plan.feature_block = feature_block(s.shape, plan.max_workspace);
  plan.candidates = {mask_candidate(s), feature_candidate(s, softmax), dense_candidate(s)};
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
  plan.why = fmt::format("least predicted time, {} {}", format_seconds(best->predicted_cost),
                         shape.device.is_cpu() ? "on the CPU" : "on a GPU");
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
