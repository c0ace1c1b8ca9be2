// The three engines behind attention(). Each takes q and k [B, H, N, m], v [B, H, N, d_v] and a mask, and
// returns [B, H, N, d_v]. Each is differentiable in q, k, v and the mask's parameters, and needs memory
// linear in its inputs, the mask's entries or the block at hand. On the CPU the operands are contiguous and
// float32 or float64; on a GPU also bfloat16 or float16, with any strides.
#pragma once

#include <ATen/core/Tensor.h>

#include "attention/score_rule.h"
#include "topomask/attention.h"

namespace topomask {

struct EngineInputs {
  at::Tensor q, k, v;
  ScoreRule rule;                  // the feature engine takes features alone
  std::int64_t max_workspace = 0;  // in bytes, as workspace_limit gives it
};

// The rule of a call for queries and keys of d channels. Where its kind is `features`, the caller applies
// options.feature_map first.
ScoreRule score_rule_of(const AttentionOptions& options, Engine engine, std::int64_t d);

// What AttentionOptions::max_workspace means beside inputs and output of so many bytes.
std::int64_t workspace_limit(std::int64_t max_workspace, double operand_bytes);

at::Tensor run_dense_engine(const EngineInputs& inputs, const Mask& mask);
at::Tensor run_feature_engine(const EngineInputs& inputs, const MaskPtr& mask);  // linear only
at::Tensor run_mask_engine(const EngineInputs& inputs, const Mask& mask);        // masks with entries
// The same on a GPU, in builds with CUDA: `entries` for all heads, or one per head.
at::Tensor run_mask_engine_on_gpu(const EngineInputs& inputs, const std::vector<SparseEntries>& entries);

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
