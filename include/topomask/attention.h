// Masked attention (Eq. 1-3, 7; Alg. 1 and 2): softmax and linear, with any mask, through three engines.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "topomask/cost_model.h"
#include "topomask/mask.h"
#include "topomask/words.h"

namespace topomask {

enum class AttentionKind {
  linear,   // (M . phi(Q) phi(K)^T) V over its row sum
  softmax,  // (M . exp(Q K^T / sqrt(d))) V over its row sum
};

enum class FeatureMapKind {
  identity,      // q and k are features already
  relu,          // max(x, 0) + epsilon
  elu1,          // elu(x) + 1 (the paper prints elu(x) + x)
  squared_relu,  // max(x, 0)^2 + epsilon
  favor,         // positive orthogonal random features of the softmax kernel (Performer)
};

struct FeatureMap {
  FeatureMapKind kind = FeatureMapKind::relu;
  double epsilon = 1e-3;           // relu, squared_relu: keeps the normaliser away from zero
  std::int64_t num_features = 64;  // favor: m
  std::uint64_t seed = 0;          // favor: another seed redraws the projection

  // x: [..., N, d] -> [..., N, m], dtype of x; features of 16-bit numbers are computed in float32 and rounded
  // once. Differentiable. favor takes the largest exponent out of each query, and out of the keys together:
  // of those of one block, where a batch of graphs is packed (see Mask::blocks).
  at::Tensor operator()(const at::Tensor& x, bool is_query,
                        const std::vector<std::int64_t>& blocks = {}) const;
  std::int64_t output_features(std::int64_t d) const;
};

enum class Engine {
  automatic,
  dense,    // (phi(Q) phi(K)^T . M) [V|1] with M materialised, in blocks of query rows
  feature,  // M applied to phi(K) x [V|1] in blocks of features: the paper's form
  mask,     // one fused pass over the entries of M: dot, weight, accumulate
};

struct AttentionOptions {
  AttentionKind kind = AttentionKind::linear;
  FeatureMap feature_map;
  Engine engine = Engine::automatic;
  // A row whose normaliser has at most this magnitude has no meaningful average: its output is 0 and passes
  // no gradient. Other rows are divided as they are, whatever the sign (docs/mathematics.md).
  double normaliser_guard = 1e-20;
  // Bytes that an engine may allocate beside inputs and output. 0: on a GPU three quarters of what is free;
  // elsewhere 2 GiB, or four times what inputs and output take if that is more.
  std::int64_t max_workspace = 0;
  bool check_finite = false;  // throw if q, k or v holds a NaN or an infinity
};

// What an engine would do for given shapes, predicted from counts.
struct PlanCandidate {
  Engine engine = Engine::dense;
  bool admissible = false;
  std::string reason;              // why not, where it is not
  double multiply_adds = 0;        // forward
  double value_multiply_adds = 0;  // besides, for new values of the mask (AttentionShape::learning)
  double bytes = 0;                // moved, forward
  double workspace = 0;            // bytes allocated beside inputs and output
  double predicted_cost = 0;       // seconds of a forward pass, on a CPU with the threads there are
};

struct AttentionPlan {
  Engine engine = Engine::dense;
  std::int64_t max_workspace = 0;  // in bytes, of the engine: what was asked for, less random features, or
                                   // what stands for 0
  std::int64_t feature_block = 1;  // features that the feature engine sends through the mask at a time
  std::string why;
  std::vector<PlanCandidate> candidates;
  std::string to_string() const;
};

struct AttentionShape {
  std::int64_t batch = 1, heads = 1, num_nodes = 0, d = 64, d_v = 64;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;
  // The mask's parameters learn: its values are new in every pass. Otherwise a CPU keeps them.
  bool learning = false;

  static AttentionShape of(const at::Tensor& q, const at::Tensor& v);  // as attention() takes them
};

// Which engine attention() would take, and why. The cost model is the same wherever a plan is made: for a
// mask that is there, or for one that is only described. A mask with a parameter that requires a gradient is
// learning, unless gradients are switched off. Rates are those of the device (cost_model.h) unless given.
AttentionPlan plan_attention(const Mask& mask, const AttentionShape& shape, const AttentionOptions& options);
AttentionPlan plan_attention(const MaskProfile& mask, const AttentionShape& shape,
                             const AttentionOptions& options);
AttentionPlan plan_attention(const MaskProfile& mask, const AttentionShape& shape,
                             const AttentionOptions& options, const DeviceRates& rates);

// q, k: [B, H, N, d], v: [B, H, N, d_v] -> [B, H, N, d_v], or packed [N, H, d] -> [N, H, d_v]; float32,
// float64, bfloat16 or, on a GPU, float16 (both accumulated in float32); all on the mask's device.
// Differentiable in q, k, v and the mask's parameters; the backward pass needs memory linear in the inputs
// and the mask's entries wherever the forward pass does.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const MaskPtr& mask,
                     const AttentionOptions& options = {});

// Multiply-adds and other floating-point operations really done by the engines on this thread since the last
// reset.
struct FlopCount {
  std::uint64_t multiply_adds = 0;
  std::uint64_t other = 0;
  std::uint64_t flops() const { return 2 * multiply_adds + other; }
};
FlopCount attention_flops();
void reset_attention_flops();

template <>
std::span<const Word<AttentionKind>> words<AttentionKind>();
template <>
std::span<const Word<FeatureMapKind>> words<FeatureMapKind>();
template <>
std::span<const Word<Engine>> words<Engine>();

}  // namespace topomask
