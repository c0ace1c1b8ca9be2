// The three engines behind attention(). Each takes queries and keys as features, or with fused_relu as what
// it makes them of ([B, H, N, m], contiguous, float32 or float64), values [B, H, N, d_v], and returns
// [B, H, N, d_v]; each is differentiable in all of them and in the mask's parameters, and needs memory linear
// in its inputs, the mask's entries or the block at hand. On a GPU q, k and v come as they were given to
// attention(): float32, float64, bfloat16 or float16, with any steps from row to row but adjacent columns.
#pragma once

#include <ATen/core/Tensor.h>

#include "topomask/attention.h"

namespace topomask {

struct EngineInputs {
  at::Tensor q, k, v;
  bool softmax = false;  // exp(scale <q, k>) instead of <q, k>
  double scale = 1;
  double guard = 0;
  bool fused_relu = false;  // mask and dense engine: the features are max(x, 0) + epsilon
  double epsilon = 0;
  std::int64_t max_workspace = 0;  // in bytes, as workspace_limit gives it
};

// What AttentionOptions::max_workspace means beside inputs and output of so many bytes.
std::int64_t workspace_limit(std::int64_t max_workspace, double operand_bytes);

at::Tensor run_dense_engine(const EngineInputs& inputs, const Mask& mask);
at::Tensor run_feature_engine(const EngineInputs& inputs, const MaskPtr& mask);  // linear only
at::Tensor run_mask_engine(const EngineInputs& inputs, const Mask& mask);        // masks with entries

// [features, d], rows with the law of N(0, I_d), orthogonal to each other within every block of d rows.
// Shared by all who ask for it: not to be written to.
at::Tensor favor_projection(std::int64_t features, std::int64_t d, std::uint64_t seed, at::ScalarType dtype,
                            c10::Device device);

// Masks of at most this rank are applied through their factors; beyond it, like any other operator.
constexpr std::int64_t kMaxFactorRank = 8;
// Query rows that the dense engine scores at a time.
std::int64_t dense_block_rows(const AttentionShape& shape, std::int64_t max_workspace);
// Feature columns that the feature engine sends through the mask at a time.
std::int64_t feature_block(const AttentionShape& shape, std::int64_t max_workspace);

}  // namespace topomask
